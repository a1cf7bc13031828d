;; What Go's runtime takes from WASI, without a system: a rule may import nothing. A clock that stands still, zeros for
;; random numbers, no arguments, no environment, no files.
(module
  (import "env" "memory" (memory 0))
  ;; The runtime refuses a clock that says zero.
  (func (export "clock_time_get") (param i32 i64 i32) (result i32)
    (i64.store (local.get 2) (i64.const 1)) (i32.const 0))
  (func (export "adapter_monotonic_clock_set_paused") (param i32))
  (func (export "random_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "args_sizes_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "args_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "environ_sizes_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "environ_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "sched_yield") (result i32) (i32.const 0))
  (func (export "poll_oneoff") (param i32 i32 i32 i32) (result i32) unreachable)
  (func (export "proc_exit") (param i32) unreachable)
  ;; 8: no such file.
  (func (export "fd_write") (param i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_close") (param i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) (i32.const 8)))

//! Reports a mapped file that was truncated. Without this handler, the system ends the process with
//! SIGBUS and no message.
#![allow(unsafe_code, reason = "a signal handler, and what it may read")]

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use libc::{SIG_DFL, SIGBUS, STDERR_FILENO, siginfo_t};

/// Installs a handler of SIGBUS that reports a truncated index file on standard error and exits with
/// code 1. A program calls it once, early; a library must not take the signal by itself.
///
/// # Errors
/// Fails if the handler cannot be installed.
pub fn report_truncated_files() -> std::io::Result<()> {
    // SAFETY: the handler reads atomics and what they point to, which is never freed, and calls
    // `write`, `_exit`, `signal` and `raise` alone, all of which a signal handler may call.
    unsafe { signal_hook_registry::register_sigaction(SIGBUS, on_bus_error) }.map(drop)
}

/// The addresses and the path of a mapped file. Leaked, because the handler may read it at any time:
/// one for every file that is ever opened.
struct Mapping {
    addresses: Range<usize>,
    path: Box<[u8]>,
}

/// The current mappings; a null slot is free. If no slot is free, a file is mapped without being
/// registered.
static MAPPINGS: [AtomicPtr<Mapping>; 4096] = [const { AtomicPtr::new(null_mut()) }; 4096];

/// A registration of a mapped file with the handler, which ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct MappingGuard(Option<&'static AtomicPtr<Mapping>>);

impl MappingGuard {
    pub(crate) fn new(bytes: &[u8], path: &Path) -> Self {
        let start = bytes.as_ptr().addr();
        let mapping = Box::into_raw(Box::new(Mapping {
            addresses: start..start + bytes.len(),
            path: path.as_os_str().as_bytes().into(),
        }));
        for slot in &MAPPINGS {
            if slot.compare_exchange(null_mut(), mapping, Release, Relaxed).is_ok() {
                return Self(Some(slot));
            }
        }
        Self(None)
    }
}

impl Drop for MappingGuard {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.store(null_mut(), Release);
        }
    }
}

fn on_bus_error(info: &siginfo_t) {
    // SAFETY: the system sets the address of every fault. A signal that a process sent has none;
    // the value is then not used.
    let address = unsafe { info.si_addr() }.addr();
    let is_fault = info.si_code > 0;
    for slot in &MAPPINGS {
        // SAFETY: a pointer of the list is null or was leaked, and its target never changes.
        let Some(mapping) = (unsafe { slot.load(Acquire).as_ref() }) else { continue };
        if is_fault && mapping.addresses.contains(&address) {
            write_stderr(b"error: ");
            write_stderr(&mapping.path);
            write_stderr(
                b": the file was truncated, or cannot be read, while it was in use; \
                copy or build the index again\n",
            );
            // SAFETY: the call takes any number.
            unsafe { libc::_exit(1) }
        }
    }
    // SAFETY: the default action of a signal that exists. A failed access is repeated and then
    // takes this action; a signal that was sent is raised again.
    unsafe {
        libc::signal(SIGBUS, SIG_DFL);
        if !is_fault {
            libc::raise(SIGBUS);
        }
    }
}

fn write_stderr(text: &[u8]) {
    // SAFETY: the bytes are those of a slice. An error is ignored: there is nowhere to report it.
    let _ = unsafe { libc::write(STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

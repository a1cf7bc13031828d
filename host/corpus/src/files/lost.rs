//! Names the file when a mapped one is truncated: the system then ends the process by SIGBUS, without a word.
#![allow(unsafe_code, reason = "a signal handler, and what it may read")]

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use libc::{SIG_DFL, SIGBUS, STDERR_FILENO, siginfo_t};

/// Has a truncated index file reported on standard error, and the process end with exit code 1. It is the program's decision to take
/// the signal, not a library's: call it once, early.
///
/// # Errors
/// Where the system refuses the handler.
pub fn name_lost_files() -> std::io::Result<()> {
    // SAFETY: the handler reads atomics and the texts they point to, which are never freed, and calls `write`, `_exit` and `signal`
    // alone, all of which a signal handler may call.
    unsafe { signal_hook_registry::register_sigaction(SIGBUS, on_bus_error) }.map(drop)
}

/// A mapped file. A handler cannot take a lock, so each field is read by itself; `start` is written last and cleared first.
struct Mapped {
    start: AtomicUsize,
    end: AtomicUsize,
    name: AtomicUsize,
    name_length: AtomicUsize,
}

/// Files beyond these are mapped as well, but not named.
static FILES: [Mapped; 4096] = [const {
    Mapped {
        start: AtomicUsize::new(FREE),
        end: AtomicUsize::new(0),
        name: AtomicUsize::new(0),
        name_length: AtomicUsize::new(0),
    }
}; 4096];

/// Nothing is ever mapped at these addresses.
const FREE: usize = 0;
const TAKEN: usize = 1;

/// Keeps a mapped file's name where the handler finds it, for as long as the value lives.
#[derive(Debug)]
pub(crate) struct Named(Option<usize>);

impl Named {
    pub(crate) fn new(bytes: &[u8], path: &Path) -> Self {
        let place = FILES.iter().position(|file| file.start.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok());
        if let Some(place) = place {
            let file = &FILES[place];
            // Leaked, because a handler may be reading it at any time: a path for every file that is ever opened.
            let name: &'static [u8] = Box::leak(path.as_os_str().as_bytes().into());
            let start = bytes.as_ptr() as usize;
            file.end.store(start + bytes.len(), Relaxed);
            file.name.store(name.as_ptr() as usize, Relaxed);
            file.name_length.store(name.len(), Relaxed);
            file.start.store(start, Release);
        }
        Self(place)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            FILES[place].start.store(FREE, Release);
        }
    }
}

fn on_bus_error(info: &siginfo_t) {
    // SAFETY: the system gives an address with every SIGBUS.
    let address = unsafe { info.si_addr() } as usize;
    let holds = |file: &&Mapped| {
        let start = file.start.load(Acquire);
        start > TAKEN && (start..file.end.load(Relaxed)).contains(&address)
    };
    match FILES.iter().find(holds) {
        Some(file) => {
            let (name, length) = (file.name.load(Relaxed), file.name_length.load(Relaxed));
            say(b"error: ".as_ptr(), 7);
            say(name as *const u8, length);
            let why =
                b": the file was truncated, or cannot be read, while it was in use; copy or build the index again\n";
            say(why.as_ptr(), why.len());
            // SAFETY: it takes any number.
            unsafe { libc::_exit(1) }
        }
        // SAFETY: the default action of a signal that exists; the access that failed is made again and ends the process.
        None => drop(unsafe { libc::signal(SIGBUS, SIG_DFL) }),
    }
}

fn say(text: *const u8, length: usize) {
    // SAFETY: the caller's bytes are static or leaked. Where standard error is closed, nobody listens.
    let _ = unsafe { libc::write(STDERR_FILENO, text.cast(), length) };
}

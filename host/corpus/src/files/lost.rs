//! Names the file when a mapped one is truncated: the system then ends the process by SIGBUS,
//! without a word.
#![allow(unsafe_code, reason = "a signal handler, and what it may read")]

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use libc::{SIG_DFL, SIGBUS, STDERR_FILENO, siginfo_t};

/// Has a truncated index file reported on standard error, and the process end with exit code 1. It
/// is the program's decision to take the signal, not a library's: call it once, early.
///
/// # Errors
/// Where the system refuses the handler.
pub fn name_lost_files() -> std::io::Result<()> {
    // SAFETY: the handler reads atomics and what they point to, which is never freed, and calls
    // `write`, `_exit`, `signal` and `raise` alone, all of which a signal handler may call.
    unsafe { signal_hook_registry::register_sigaction(SIGBUS, on_bus_error) }.map(drop)
}

/// A mapped file. Leaked, because a handler may be reading it at any time: one for every file that
/// is ever opened.
struct Mapped {
    addresses: Range<usize>,
    name: Box<[u8]>,
}

/// The files that are mapped now; null where there is room. Files beyond these are mapped as well,
/// but not named.
static FILES: [AtomicPtr<Mapped>; 4096] = [const { AtomicPtr::new(null_mut()) }; 4096];

/// Keeps a mapped file's name where the handler finds it, for as long as the value lives.
#[derive(Debug)]
pub(crate) struct Named(Option<&'static AtomicPtr<Mapped>>);

impl Named {
    pub(crate) fn new(bytes: &[u8], path: &Path) -> Self {
        let start = bytes.as_ptr().addr();
        let mapped = Mapped {
            addresses: start..start + bytes.len(),
            name: path.as_os_str().as_bytes().into(),
        };
        let mapped = Box::into_raw(Box::new(mapped));
        Self(
            FILES
                .iter()
                .find(|place| place.compare_exchange(null_mut(), mapped, Release, Relaxed).is_ok()),
        )
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(null_mut(), Release);
        }
    }
}

fn on_bus_error(info: &siginfo_t) {
    // SAFETY: the system gives an address with every fault. One that a process sent has none that
    // is looked for.
    let address = unsafe { info.si_addr() }.addr();
    let is_fault = info.si_code > 0;
    // SAFETY: a pointer of the list is null or was leaked, and what it points to never changes.
    let mut files = FILES.iter().filter_map(|place| unsafe { place.load(Acquire).as_ref() });
    if let Some(file) = files.find(|file| is_fault && file.addresses.contains(&address)) {
        say(b"error: ");
        say(&file.name);
        say(b": the file was truncated, or cannot be read, while it was in use; copy or build the index again\n");
        // SAFETY: it takes any number.
        unsafe { libc::_exit(1) }
    }
    // SAFETY: the default action of a signal that exists. A failed access is made again and meets
    // it; a signal that was sent is sent again.
    unsafe {
        libc::signal(SIGBUS, SIG_DFL);
        if !is_fault {
            libc::raise(SIGBUS);
        }
    }
}

fn say(text: &[u8]) {
    // SAFETY: the bytes are those of a slice. Where standard error is closed, nobody listens.
    let _ = unsafe { libc::write(STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

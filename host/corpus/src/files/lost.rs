//! A mapped file that becomes shorter: what the system would end the process for becomes an error that names the file.
//!
//! Reading a page that its file no longer has raises SIGBUS. The handler looks for the address in a list of all maps, puts
//! pages of zeros in place of the rest of the map, marks it as lost, and the read goes on. Zeros are as good as any damage:
//! no value of a map is used before it is checked. Who reads from a map asks afterwards whether it was lost meanwhile.
//! A fault at any other address goes to the handler that was there before.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{OnceLock, PoisonError};

/// `Entry::start` of an entry that no map has, and of one whose `end` is being written: above every address.
const FREE: usize = usize::MAX;
const CLAIMED: usize = usize::MAX - 1;

/// One map of the list. Entries are never freed, so that the handler may follow `next` at any time; another map takes the
/// entry of one that is gone.
#[derive(Debug)]
struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicBool,
    next: AtomicPtr<Entry>,
}

static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(null_mut());

/// Watches a map for as long as it lives.
#[derive(Debug)]
pub(super) struct Watch(&'static Entry);

impl Watch {
    /// Must be dropped before the map is.
    pub(super) fn new(map: &[u8]) -> io::Result<Self> {
        install()?;
        let entry = free_entry();
        entry.lost.store(false, Ordering::Relaxed);
        entry.end.store(map.as_ptr_range().end.addr(), Ordering::Release);
        entry.start.store(map.as_ptr().addr(), Ordering::Release);
        Ok(Self(entry))
    }

    /// Whether the map's file has become shorter, and something was read beyond its end.
    pub(super) fn is_lost(&self) -> bool {
        fence(Ordering::SeqCst); // what was read from the map was read before this
        self.0.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.start.store(FREE, Ordering::Release);
    }
}

/// An entry that the handler passes over and nobody else takes.
fn free_entry() -> &'static Entry {
    for entry in entries() {
        if entry.start.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return entry;
        }
    }
    let entry: &'static mut Entry = Box::leak(Box::new(Entry {
        start: AtomicUsize::new(CLAIMED),
        end: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
        next: AtomicPtr::new(null_mut()),
    }));
    let mut first = ENTRIES.load(Ordering::Acquire);
    loop {
        *entry.next.get_mut() = first;
        match ENTRIES.compare_exchange(first, entry, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return entry,
            Err(other) => first = other,
        }
    }
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: every pointer of the list is null or was leaked, and an entry is whole before it is in the list.
    let entry = |pointer: *mut Entry| unsafe { pointer.as_ref() };
    std::iter::successors(entry(ENTRIES.load(Ordering::Acquire)), move |at| entry(at.next.load(Ordering::Acquire)))
}

/// What was there before our handler.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

fn install() -> io::Result<()> {
    static INSTALLED: std::sync::Mutex<bool> = std::sync::Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    // SAFETY: both structures are plain data that live through the calls; all-zero bytes are a valid `sigaction`. The
    // handler does only what a handler may do: it reads atomics and calls `mmap` and `sigaction`.
    unsafe {
        let mut before = MaybeUninit::zeroed();
        check(libc::sigaction(libc::SIGBUS, null(), before.as_mut_ptr()))?;
        BEFORE.get_or_init(|| before.assume_init());
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handle as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        check(libc::sigaction(libc::SIGBUS, &action, null_mut()))?;
    }
    *installed = true;
    Ok(())
}

fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a valid `info`, whose address is only used where a fault and no process raised the signal.
    // `errno` belongs to this thread, and what was interrupted finds it as it was.
    let (is_fault, address, errno) =
        unsafe { ((*info).si_code > 0, (*info).si_addr().addr(), *libc::__errno_location()) };
    if !(is_fault && replace_rest_of_map(address)) {
        hand_on(signal, info, context);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Puts zeros in place of a map from the page of this address to its end; whether that was done.
fn replace_rest_of_map(address: usize) -> bool {
    for entry in entries() {
        let start = entry.start.load(Ordering::Acquire);
        if address < start {
            continue;
        }
        let end = entry.end.load(Ordering::Acquire);
        // Where the entry has changed hands meanwhile, the two may belong to two maps, neither of them the one that is
        // being read: that one lives, and its entry does not change.
        if address >= end || entry.start.load(Ordering::Acquire) != start {
            continue;
        }
        // SAFETY: `sysconf` only reads a constant.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let from = address & !(page - 1);
        entry.lost.store(true, Ordering::SeqCst); // first: another thread may read the zeros at once, without a fault
        // SAFETY: `from..end` lies within a map of ours that a reader borrows at this moment, so that it is neither
        // unmapped nor anyone else's. A private anonymous map takes its place; whoever unmaps the whole unmaps it too.
        let placed = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            libc::mmap(from as *mut c_void, end - from, libc::PROT_READ, flags, -1, 0)
        };
        return placed != libc::MAP_FAILED;
    }
    false
}

/// Does what would have been done without our handler.
fn hand_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(before) = BEFORE.get() else { return };
    match before.sa_sigaction {
        // SAFETY: the action is one that the system gave us. The faulting instruction runs again and meets it; a signal that
        // was sent is raised again.
        libc::SIG_DFL | libc::SIG_IGN => unsafe {
            libc::sigaction(signal, before, null_mut());
            if (*info).si_code <= 0 {
                libc::raise(signal);
            }
        },
        // SAFETY: a handler that was installed with SA_SIGINFO has this signature, and another has the one below.
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => unsafe {
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = std::mem::transmute(handler);
            handler(signal, info, context);
        },
        // SAFETY: as above.
        handler => unsafe {
            let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
            handler(signal);
        },
    }
}

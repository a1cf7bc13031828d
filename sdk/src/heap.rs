//! The memory of a rule that runs as a component.
//!
//! Judging a batch takes thousands of short lists and texts: words, queries, outcomes, and what a response rule is handed. This
//! allocator hands out blocks of 16, 32, 64, … bytes and keeps a list of the free ones of each size: a few instructions
//! either way. A freed block serves its own size only.
#![allow(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};

/// Unit in which linear memory grows, in bytes.
const PAGE: usize = 64 << 10;
/// What is asked for at once, in bytes: growing leaves the sandbox.
const STEP: usize = 16 * PAGE;
/// Size and alignment of the smallest block, in bytes.
const SMALLEST: usize = 16;

#[cfg(all(target_family = "wasm", target_feature = "atomics"))]
compile_error!("a rule has one thread, and so has its allocator: build without the target feature `atomics`");

/// Where a heap gets its memory.
///
/// # Safety
/// What `grow` gives is as it says.
unsafe trait Pages {
    /// So many more bytes, a multiple of `PAGE`, from an address that is a multiple of `SMALLEST`; nobody else uses
    /// them. `None` where there are none left.
    fn grow(&self, bytes: usize) -> Option<NonNull<u8>>;
}

/// The linear memory of a WebAssembly instance.
#[cfg(target_family = "wasm")]
struct LinearMemory;

// SAFETY: linear memory grows by whole pages that were not there before.
#[cfg(target_family = "wasm")]
unsafe impl Pages for LinearMemory {
    fn grow(&self, bytes: usize) -> Option<NonNull<u8>> {
        let page = core::arch::wasm32::memory_grow::<0>(bytes / PAGE);
        if page == usize::MAX { None } else { NonNull::new(ptr::with_exposed_provenance_mut(page * PAGE)) }
    }
}

/// The allocator of every component that links this crate. Its first bytes are declared with the component: what an instance grows is
/// made accessible for it and inaccessible again before the next one, two system calls that a usual batch so does without.
#[cfg(target_family = "wasm")]
#[global_allocator]
static HEAP: Heap<LinearMemory> = {
    #[repr(align(16))]
    struct Declared(UnsafeCell<[u8; STEP]>);
    // SAFETY: nobody reaches it but HEAP, which WebAssembly's one thread uses.
    unsafe impl Sync for Declared {}
    static DECLARED: Declared = Declared(UnsafeCell::new([0; STEP]));
    // SAFETY: the bytes are aligned to SMALLEST, and nobody else reaches them.
    unsafe { Heap::new(LinearMemory, DECLARED.0.get().cast(), STEP) }
};

/// An allocator for one thread.
struct Heap<P> {
    pages: P,
    state: UnsafeCell<State>,
}

struct State {
    /// Not handed out yet: from here,
    next: *mut u8,
    /// so many bytes.
    left: usize,
    /// Blocks of 2ⁱ bytes that were freed; each begins with the address of the next one.
    free: [*mut u8; usize::BITS as usize],
}

// SAFETY: WebAssembly has one thread: see above.
#[cfg(target_family = "wasm")]
unsafe impl Sync for Heap<LinearMemory> {}

impl<P> Heap<P> {
    /// Hands out `left` bytes from `next` before it asks `pages` for any.
    ///
    /// # Safety
    /// Nobody else uses these bytes, and `next` is a multiple of `SMALLEST`.
    const unsafe fn new(pages: P, next: *mut u8, left: usize) -> Self {
        let free = [ptr::null_mut(); usize::BITS as usize];
        Self { pages, state: UnsafeCell::new(State { next, left, free }) }
    }
}

/// Which power of two the block for `layout` has.
fn class(layout: Layout) -> usize {
    layout.size().max(SMALLEST).next_power_of_two().trailing_zeros() as usize
}

impl State {
    /// Bytes that were never handed out, null where there are none left.
    fn carve(&mut self, size: usize, pages: &impl Pages) -> *mut u8 {
        if self.left < size && !self.grow(size, pages) {
            return ptr::null_mut();
        }
        let block = self.next;
        self.next = block.wrapping_add(size);
        self.left -= size;
        block
    }

    /// Whether there are `size` bytes now; those that were left stay unused. Rare, and thus kept out of the code of every
    /// allocation.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, size: usize, pages: &impl Pages) -> bool {
        let bytes = size.max(STEP).next_multiple_of(PAGE);
        let Some(grown) = pages.grow(bytes) else { return false };
        (self.next, self.left) = (grown.as_ptr(), bytes);
        true
    }
}

// SAFETY: a block is carved once, from memory that is the heap's alone, so blocks never overlap; it is in a free list
// only between its release and the next time it is handed out. All sizes are multiples of SMALLEST, so every block is
// aligned to that, and larger alignments are made by hand. `state` is borrowed in these functions alone, which do not
// call each other meanwhile.
unsafe impl<P: Pages> GlobalAlloc for Heap<P> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: one thread, and no other borrow: see above.
        let state = unsafe { &mut *self.state.get() };
        if layout.align() > SMALLEST {
            let padded = (layout.size() + layout.align()).next_multiple_of(SMALLEST);
            let block = state.carve(padded, &self.pages);
            return if block.is_null() { block } else { block.wrapping_add(block.align_offset(layout.align())) };
        }
        let class = class(layout);
        let block = state.free[class];
        if block.is_null() {
            return state.carve(1 << class, &self.pages);
        }
        // SAFETY: a free block begins with an address, written by `dealloc`.
        state.free[class] = unsafe { block.cast::<*mut u8>().read() };
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // Rare enough not to be kept: no type of a rule's has such an alignment.
        if layout.align() > SMALLEST {
            return;
        }
        // SAFETY: one thread, and no other borrow: see above.
        let state = unsafe { &mut *self.state.get() };
        let class = class(layout);
        // SAFETY: nobody uses the block any more; it is large enough for an address and aligned for one.
        unsafe { block.cast::<*mut u8>().write(state.free[class]) };
        state.free[class] = block;
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: `new_size`, rounded up to the alignment, is no more than `isize::MAX`.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if layout.align() <= SMALLEST && class(layout) == class(new_layout) {
            return block;
        }
        // SAFETY: the caller's promise: `block` is from here and has this layout; and `new_size` is not 0.
        unsafe {
            let new = self.alloc(new_layout);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Memory for `left` growths; leaks, as linear memory does.
    struct Leaked(Cell<usize>);

    unsafe impl Pages for Leaked {
        fn grow(&self, bytes: usize) -> Option<NonNull<u8>> {
            self.0.set(self.0.get().checked_sub(1)?);
            NonNull::new(vec![0_u128; bytes / 16].leak().as_mut_ptr().cast())
        }
    }

    /// A block that was handed out, filled with its own number.
    struct Held {
        at: *mut u8,
        layout: Layout,
        number: u8,
    }

    impl Held {
        fn fill(&self) {
            assert!(!self.at.is_null() && self.at.align_offset(self.layout.align()) == 0);
            unsafe { self.at.write_bytes(self.number, self.layout.size()) };
        }

        fn is_untouched(&self, bytes: usize) -> bool {
            (0..bytes).all(|i| unsafe { self.at.add(i).read() } == self.number)
        }
    }

    #[test]
    fn blocks_keep_what_is_written_to_them() {
        let heap = unsafe { Heap::new(Leaked(Cell::new(1_000)), ptr::null_mut(), 0) };
        let mut held: Vec<Held> = Vec::new();
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for step in 0..20_000 {
            let most = [8, 8, 100, 100, 5_000, 300_000][random(6)];
            let size = 1 + random(most);
            let alignment = [1, 4, 8, 16, 64][random(5)];
            match random(5) {
                0 | 1 => {
                    let layout = Layout::from_size_align(size, alignment).unwrap();
                    let block = Held { at: unsafe { heap.alloc(layout) }, layout, number: step as u8 };
                    block.fill();
                    held.push(block);
                }
                2 | 3 if !held.is_empty() => {
                    let block = held.swap_remove(random(held.len()));
                    assert!(block.is_untouched(block.layout.size()));
                    unsafe { heap.dealloc(block.at, block.layout) };
                }
                4 if !held.is_empty() => {
                    let i = random(held.len());
                    let block = &mut held[i];
                    block.at = unsafe { heap.realloc(block.at, block.layout, size) };
                    assert!(block.is_untouched(size.min(block.layout.size())));
                    block.layout = Layout::from_size_align(size, block.layout.align()).unwrap();
                    block.fill();
                }
                _ => {}
            }
        }
    }

    #[test]
    fn what_was_freed_serves_again_and_the_end_is_null() {
        let heap = unsafe { Heap::new(Leaked(Cell::new(1)), ptr::null_mut(), 0) };
        let layout = Layout::from_size_align(STEP / 2, 8).unwrap();
        unsafe {
            let [first, second, third] = [(); 3].map(|()| heap.alloc(layout));
            assert!(!first.is_null() && !second.is_null() && third.is_null());
            heap.dealloc(first, layout);
            assert_eq!(heap.alloc(layout), first);
        }
    }

    #[test]
    fn the_first_bytes_are_handed_out_before_any_are_grown() {
        let first = vec![0_u128; 4].leak();
        let begin: *mut u8 = first.as_mut_ptr().cast();
        let heap = unsafe { Heap::new(Leaked(Cell::new(1)), begin, 64) };
        let block = |size| unsafe { heap.alloc(Layout::from_size_align(size, 16).unwrap()) };
        assert_eq!([block(32), block(16)], [begin, begin.wrapping_add(32)]);
        // Too large for the 16 bytes that are left.
        let [grown, next] = [block(32), block(16)];
        assert!(!grown.is_null() && grown != begin.wrapping_add(48));
        assert_eq!(next, grown.wrapping_add(32));
        assert_eq!(heap.pages.0.get(), 0, "grown once");
    }
}

//! Keeps the daemon's memory near what its caches hold.
//!
//! What one thread reads into a cache another thread drops, and caches live as long as the mount. glibc would give each
//! thread a heap of its own. None of these shrinks while one block at its end is in use. After the first large buffer
//! glibc would take all others from those heaps, too. With a million files touched, the daemon then keeps half as much
//! again as its caches hold. One heap for all costs nothing here, as requests take turns anyway.

/// Bytes from which on a buffer is mapped by itself, and goes back to the system when it is dropped.
#[cfg(target_env = "gnu")]
const MAPPED_FROM: i32 = 128 << 10;

/// Sets the allocator up; does nothing where it is not glibc's. Call before any other thread is started.
#[cfg_attr(target_env = "gnu", allow(unsafe_code))]
pub fn set_up_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) takes two numbers and only changes settings of the allocator. That it refuses them is no
    // error: memory is then merely used less well.
    unsafe {
        let _ = libc::mallopt(libc::M_ARENA_MAX, 1);
        let _ = libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
    }
}

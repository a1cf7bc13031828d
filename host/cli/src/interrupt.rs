//! Ctrl-C and SIGTERM: the first requests a graceful stop, the second exits immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Exit code of an interrupted program: 128 + SIGINT, as in shells.
const INTERRUPTED: u8 = 130;

/// A flag that the first signal sets.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the signal handlers.
    pub fn listen() -> std::io::Result<Self> {
        let requested = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal must not find the flag set, the second must.
            let exit_flag = Arc::clone(&requested);
            flag::register_conditional_shutdown(signal, INTERRUPTED.into(), exit_flag)?;
            flag::register(signal, Arc::clone(&requested))?;
        }
        Ok(Self(requested))
    }

    /// True if a signal has been received.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

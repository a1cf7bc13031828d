//! Socket of a client, with a time limit for reading an answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Socket whose writes fail with `TimedOut` if the client does not read everything within `time`
/// after it stops reading. Reading a byte now and then does not extend the time.
pub(super) struct ClientStream {
    socket: TcpStream,
    time: Duration,
    /// Deadline; `None` while nothing is unread.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Set when bytes arrive.
    received: Arc<AtomicBool>,
}

impl ClientStream {
    pub(super) fn new(socket: TcpStream, time: Duration, received: Arc<AtomicBool>) -> Self {
        Self { socket, time, deadline: None, received }
    }

    fn within_time<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            return written;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(self.time)));
        deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(context, buf);
        if buf.filled().len() > before {
            self.received.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.within_time(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, parts);
        self.within_time(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    // hyper flushes after it has written everything, so nothing is unread any more.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.deadline = None;
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

//! WASI as a guest sees it: clocks and randomness, an empty environment, no files,
//! no sockets, and standard streams that end in the log.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::{
    WasiCtx,
    cli::{IsTerminal, StdoutStream},
    p2::{OutputStream, Pollable, StreamResult},
};

use super::imports::{CallLog, Severity};

/// The most random bytes of one request.
const RANDOM_BYTES: u64 = 1 << 20;
/// The most that is kept of a line that has not ended.
const LINE_BYTES: usize = 8 << 10;

/// The context of one call.
pub(crate) fn context(log: &Arc<CallLog>) -> WasiCtx {
    WasiCtx::builder()
        .stdout(Lines::new(Arc::clone(log), Severity::Info))
        .stderr(Lines::new(Arc::clone(log), Severity::Warn))
        .max_random_size(RANDOM_BYTES)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .socket_addr_check(|_, _| Box::pin(async { false }))
        .build()
}

/// A standard stream, cut into lines of the log.
#[derive(Clone)]
struct Lines(Arc<Stream>);

struct Stream {
    log: Arc<CallLog>,
    level: Severity,
    rest: Mutex<Vec<u8>>,
}

impl Lines {
    fn new(log: Arc<CallLog>, level: Severity) -> Self {
        Self(Arc::new(Stream { log, level, rest: Mutex::default() }))
    }

    fn take(&self, bytes: &[u8]) {
        let mut rest = self.0.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts = bytes.split(|&byte| byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let room = (LINE_BYTES + 1).saturating_sub(rest.len());
            rest.extend_from_slice(&part[..part.len().min(room)]);
            if parts.peek().is_some() {
                self.0.log.line(self.0.level, &String::from_utf8_lossy(&rest));
                rest.clear();
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let rest = self.rest.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !rest.is_empty() {
            self.log.line(self.level, &String::from_utf8_lossy(rest));
        }
    }
}

impl IsTerminal for Lines {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Lines {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Lines {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 << 10)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Lines {
    async fn ready(&mut self) {}
}

impl AsyncWrite for Lines {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.take(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::counters::Counters;

    #[test]
    fn a_stream_becomes_lines_however_it_is_written() {
        let counters = Arc::<Counters>::default();
        let log = CallLog::new("key".into(), "request".to_owned(), Arc::clone(&counters));
        let lines = Lines::new(Arc::new(log), Severity::Info);
        let again = lines.clone();
        lines.take(b"one\ntw");
        again.take(b"o\n\nthree");
        assert_eq!(counters.read().log_lines, 3, "one, two and an empty one");
        drop((lines, again));
        assert_eq!(counters.read().log_lines, 4, "what was left comes out at the end");
    }

    #[test]
    fn a_line_without_an_end_is_kept_only_so_far() {
        let counters = Arc::<Counters>::default();
        let log = CallLog::new("key".into(), "request".to_owned(), Arc::clone(&counters));
        let lines = Lines::new(Arc::new(log), Severity::Warn);
        for _ in 0..10 {
            lines.take(&[b'x'; 4 << 10]);
        }
        assert!(lines.0.rest.lock().expect("the rest").len() <= LINE_BYTES + 1);
        lines.take(b"\n");
        assert_eq!((counters.read().log_lines, counters.read().log_lines_cut), (1, 1));
    }
}

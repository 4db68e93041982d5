//! Counts what comes out of a decompressor, and stops it before it is too much.

use std::{
    cell::Cell,
    io::{self, Read},
};

/// Which bound was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breach {
    /// The bytes of the whole stream.
    Total,
    /// The bytes of the part that is being read.
    Part,
}

/// The bounds of a stream, and how far it has come.
pub(super) struct Meter {
    left: Cell<u64>,
    part_left: Cell<u64>,
    zeros: Cell<u64>,
    breach: Cell<Option<Breach>>,
}

impl Meter {
    /// A meter that lets `total` bytes through, and nothing before the first part.
    pub(super) fn new(total: u64) -> Self {
        Self { left: Cell::new(total), part_left: Cell::new(0), zeros: Cell::new(0), breach: Cell::new(None) }
    }

    /// Begins a part of at most `bytes`.
    pub(super) fn begin_part(&self, bytes: u64) {
        self.part_left.set(bytes);
    }

    /// The bound that was passed, if one was.
    pub(super) fn breach(&self) -> Option<Breach> {
        self.breach.get()
    }

    /// How many zero bytes the stream has ended with so far.
    pub(super) fn trailing_zeros(&self) -> u64 {
        self.zeros.get()
    }

    fn count(&self, bytes: &[u8]) {
        let length = bytes.len() as u64;
        self.left.set(self.left.get() - length);
        self.part_left.set(self.part_left.get() - length);
        let tail = bytes.iter().rev().take_while(|&&byte| byte == 0).count() as u64;
        self.zeros.set(if tail == length { self.zeros.get() + length } else { tail });
    }
}

/// A reader under a [`Meter`].
pub(super) struct Metered<'a, R> {
    pub(super) inner: R,
    pub(super) meter: &'a Meter,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let meter = self.meter;
        let allowed = meter.left.get().min(meter.part_left.get());
        if allowed == 0 && !buffer.is_empty() {
            // At a bound, only the end of the stream is welcome.
            if self.inner.read(&mut [0])? == 0 {
                return Ok(0);
            }
            meter.breach.set(Some(if meter.left.get() == 0 { Breach::Total } else { Breach::Part }));
            return Err(io::Error::other("the archive passes a limit"));
        }
        let length = usize::try_from(allowed).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.inner.read(&mut buffer[..length])?;
        meter.count(&buffer[..read]);
        Ok(read)
    }
}

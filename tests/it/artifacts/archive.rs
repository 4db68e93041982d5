//! Archives, honest ones and others, written byte by byte.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use tar::{Builder, EntryType, Header};

/// A tar file in the making; names are written as they are, whatever they are.
pub(crate) struct Tar(Builder<Vec<u8>>);

impl Tar {
    pub(crate) fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    /// An honest bundle: a manifest, a component, a skill.
    pub(crate) fn bundle(manifest: &str) -> Self {
        Self::new()
            .file("connector.json", manifest.as_bytes())
            .file("component.wasm", super::world::COMPONENT)
            .file("skills/echo/SKILL.md", b"# Echo")
    }

    pub(crate) fn file(self, name: &str, bytes: &[u8]) -> Self {
        self.entry(name, EntryType::Regular, bytes, "")
    }

    pub(crate) fn folder(self, name: &str) -> Self {
        self.entry(name, EntryType::Directory, b"", "")
    }

    pub(crate) fn entry(mut self, name: &str, kind: EntryType, bytes: &[u8], link: &str) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o777);
        let raw = header.as_old_mut();
        raw.name[..name.len()].copy_from_slice(name.as_bytes());
        raw.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, bytes).expect("an entry");
        self
    }

    /// An entry whose name only fits into an extension.
    pub(crate) fn long(mut self, name: &str, bytes: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        self.0.append_data(&mut header, name, bytes).expect("an entry");
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().expect("a tar file")
    }

    pub(crate) fn gzip(self) -> Vec<u8> {
        gzip(&self.bytes())
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("compressed");
    encoder.finish().expect("compressed")
}

/// Bytes that do not compress, the same every time.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

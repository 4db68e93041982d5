//! A catalog on disk that tests fill: with honest releases, and with releases
//! whose bytes are something else than they say.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use portcullis::{
    artifacts::catalog::{CATALOG_FILE, StaticCatalogDocument},
    authoring::bundle,
    domain::{
        catalog::{CatalogCategory, CatalogEntry, CategoryKind},
        digest::Sha256Digest,
        id::ConnectorKey,
        manifest::Manifest,
        release::{Artifact, MEDIA_TYPE_BUNDLE, Release},
        timestamp::Timestamp,
    },
};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

use super::fixtures;

const CATEGORY: &str = "tests";

/// The catalog.
pub(super) struct Shop {
    folder: TempDir,
    entries: BTreeMap<ConnectorKey, CatalogEntry>,
}

impl Shop {
    pub(super) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), entries: BTreeMap::new() }
    }

    /// A shop that sells `echo`, which every daemon can run.
    pub(super) fn with_echo() -> Self {
        let mut shop = Self::new();
        shop.offer_component("echo", "1.0.0", &manifest(json!({}), &[]), &echo());
        shop
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder as an argument.
    pub(super) fn location(&self) -> &str {
        self.path().to_str().unwrap()
    }

    /// The document as it was published last.
    pub(super) fn document(&self) -> PathBuf {
        self.path().join(CATALOG_FILE)
    }

    /// Offers a release in place of the one before; it says the truth about
    /// `bytes`, and where they lie is answered.
    pub(super) fn offer(&mut self, key: &str, version: &str, manifest: &Value, bytes: &[u8]) -> PathBuf {
        let name = format!("artifacts/{key}/{version}/{key}-{version}.tar.gz");
        let artifact = Artifact {
            key: name.clone(),
            sha256: Sha256Digest::of(bytes),
            size_bytes: i64::try_from(bytes.len()).unwrap(),
            media_type: MEDIA_TYPE_BUNDLE.to_owned(),
            object_version: None,
        };
        let key = ConnectorKey::parse(key).unwrap();
        let manifest = Manifest::parse(manifest.to_string().as_bytes()).unwrap();
        let release =
            Release::assemble(key.clone(), version.parse().unwrap(), manifest, artifact, Timestamp(1))
                .unwrap();
        self.entries.insert(key, CatalogEntry { category_id: CATEGORY.to_owned(), featured: false, release });
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Offers a component with its manifest, packed as they are.
    pub(super) fn offer_component(&mut self, key: &str, version: &str, manifest: &Value, component: &[u8]) {
        let files =
            [("connector.json", manifest.to_string().into_bytes()), ("component.wasm", component.to_vec())];
        let files = files.map(|(name, bytes)| (name.to_owned(), bytes)).into();
        self.offer(key, version, manifest, &bundle::write(&files).unwrap());
    }

    /// Publishes what is offered.
    pub(super) fn publish(&self) {
        let category = CatalogCategory {
            category_id: CATEGORY.to_owned(),
            kind: CategoryKind::Category,
            sort_order: 0,
            item_count: 0,
            display_name_zh: None,
            display_name_en: None,
        };
        let entries = self.entries.values().cloned().collect();
        let document = StaticCatalogDocument::assemble(vec![category], entries).unwrap();
        self.write_document(&serde_json::to_vec(&document).unwrap());
    }

    /// Puts any bytes in the place of the document.
    pub(super) fn write_document(&self, bytes: &[u8]) {
        // A new file each time: the daemon may be reading the old one.
        let fresh = self.path().join("fresh");
        fs::write(&fresh, bytes).unwrap();
        fs::rename(fresh, self.document()).unwrap();
    }
}

/// A manifest of a connector that runs here.
pub(super) fn manifest(limits: Value, hosts: &[&str]) -> Value {
    json!({
        "schemaVersion": "1",
        "displayName": "For tests",
        "iconUrl": "https://example.com/icon.png",
        "implementation": {
            "kind": "wasm_component",
            "world": "portcullis:connector/connector@0.1.0",
            "limits": limits,
            "allowedHosts": hosts,
        },
        "authorizationKind": "none",
    })
}

/// The component of the echo connector.
pub(super) fn echo() -> Vec<u8> {
    let packed = fs::read(fixtures("catalog/v1/artifacts/echo/1.0.0/echo-1.0.0.tar.gz")).unwrap();
    bundle::read(&packed).unwrap().remove("component.wasm").unwrap()
}

/// The same component under another digest: a custom section more.
pub(super) fn marked(component: &[u8], mark: &str) -> Vec<u8> {
    let length = u8::try_from(mark.len()).unwrap();
    assert!(length < 100, "its length is one byte");
    [component, &[0, length + 1, length], mark.as_bytes()].concat()
}

/// A bundle in the making; names are written as they are, whatever they are.
pub(super) struct Tar(Builder<Vec<u8>>);

impl Tar {
    pub(super) fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    /// A manifest and a component, as an honest bundle has them.
    pub(super) fn bundle(manifest: &Value, component: &[u8]) -> Self {
        Self::new().file("connector.json", manifest.to_string().as_bytes()).file("component.wasm", component)
    }

    pub(super) fn file(self, name: &str, bytes: &[u8]) -> Self {
        self.entry(name, EntryType::Regular, bytes, "")
    }

    pub(super) fn link(self, name: &str, kind: EntryType, to: &str) -> Self {
        self.entry(name, kind, b"", to)
    }

    fn entry(mut self, name: &str, kind: EntryType, bytes: &[u8], link: &str) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        let raw = header.as_old_mut();
        raw.name[..name.len()].copy_from_slice(name.as_bytes());
        raw.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, bytes).unwrap();
        self
    }

    pub(super) fn gzip(self) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        std::io::Write::write_all(&mut encoder, &self.0.into_inner().unwrap()).unwrap();
        encoder.finish().unwrap()
    }
}

//! What authors and catalog keepers do before a host is asked.

mod binary;
mod build;
mod catalog;
mod inspect;
mod manifest;
mod pack;
mod wit;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use portcullis::{
    authoring::{
        bundle,
        pack::{PackRequest, Packed, pack as pack_release},
    },
    domain::{
        error::{Error, ErrorCode},
        id::ConnectorKey,
        timestamp::Timestamp,
    },
};
use serde_json::Value;
use tempfile::TempDir;

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(path)
}

fn prebuilt(key: &str, version: &str, catalog: &str) -> PathBuf {
    fixture(&format!("catalog/{catalog}/artifacts/{key}/{version}/{key}-{version}.tar.gz"))
}

/// The component of a prebuilt bundle.
fn component(key: &str, version: &str, catalog: &str) -> Vec<u8> {
    let bytes = fs::read(prebuilt(key, version, catalog)).expect("the prebuilt bundle");
    bundle::read(&bytes).expect("it unpacks").remove("component.wasm").expect("it holds a component")
}

fn hostile(name: &str) -> Vec<u8> {
    wat::parse_file(fixture(&format!("hostile/{name}.wat"))).expect("the text is WebAssembly")
}

/// A folder with echo's component and manifest, and a request to pack them.
struct Workshop {
    folder: TempDir,
    request: PackRequest,
}

impl Workshop {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("component.wasm"), component("echo", "1.0.0", "v1")).expect("written");
        fs::copy(fixture("connectors/echo/connector.json"), path("connector.json")).expect("copied");
        let request = PackRequest {
            component: Some(path("component.wasm")),
            manifest: path("connector.json"),
            key: ConnectorKey::parse("echo").expect("a key"),
            version: semver::Version::new(1, 0, 0),
            icon: None,
            skills: None,
            files: Vec::new(),
            published_at: Timestamp::parse_rfc3339("2026-11-30T00:00:00Z").expect("a time"),
            out: path("out"),
            force: false,
        };
        Self { folder, request }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, and the folders it lies in.
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(&path, bytes).expect("written");
        path
    }

    /// Sets the value at a JSON pointer of the manifest.
    fn edit_manifest(&self, pointer: &str, value: Value) {
        let text = fs::read(&self.request.manifest).expect("the manifest");
        let mut manifest: Value = serde_json::from_slice(&text).expect("JSON");
        let (parent, last) = pointer.rsplit_once('/').expect("a pointer");
        manifest.pointer_mut(parent).expect("the parent is there")[last] = value;
        fs::write(&self.request.manifest, manifest.to_string()).expect("written");
    }

    fn pack(&self) -> Packed {
        pack_release(&self.request).expect("it packs")
    }

    /// Packs what must be refused, and proves that nothing was written.
    fn refusal(&self) -> Error {
        let before = tree(&self.request.out);
        let error = pack_release(&self.request).expect_err("it is refused");
        assert_eq!(tree(&self.request.out), before, "a refusal leaves nothing behind");
        error
    }
}

fn says(error: &Error, code: ErrorCode, parts: &[&str]) {
    assert_eq!(error.code, code, "{}", error.message);
    for part in parts {
        assert!(error.message.contains(part), "{:?} does not say {part:?}", error.message);
    }
}

/// Every file below `folder` with its bytes; nothing where there is no folder.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                files.insert(path.clone(), fs::read(path).expect("readable"));
            }
        }
    }
    files
}

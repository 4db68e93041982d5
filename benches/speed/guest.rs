//! The guests that are measured: echo as it is committed, and the one that loops.

use std::{
    fs,
    path::{Path, PathBuf},
};

use portcullis::{
    authoring::{build, bundle, catalog, pack},
    domain::timestamp::Timestamp,
};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The component of the committed echo.
pub(crate) fn echo() -> Vec<u8> {
    let path = fixtures().join("catalog/v2/artifacts/echo/1.0.0/echo-1.0.0.tar.gz");
    let mut files = bundle::read(&fs::read(path).expect("the committed echo")).expect("a bundle");
    files.remove("component.wasm").expect("its component")
}

/// The component of the guest that misbehaves, built from its source.
pub(crate) fn misbehave() -> PathBuf {
    let request = build::BuildRequest {
        folder: fixtures().join("hostile/misbehave"),
        features: Vec::new(),
        no_default_features: false,
        locked: true,
        target_dir: Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("target/guests")),
        out: None,
    };
    build::build(&request).expect("the guest builds").component
}

/// A catalog in `folder` that lists echo under each of `keys`.
pub(crate) fn catalog_of_echoes(folder: &Path, keys: &[String]) -> PathBuf {
    let component = folder.join("echo.wasm");
    fs::write(&component, echo()).expect("the component is written");
    let mut releases = Vec::new();
    for key in keys {
        let packed = pack::pack(&pack::PackRequest {
            component: Some(component.clone()),
            manifest: fixtures().join("connectors/echo/connector.json"),
            key: key.parse().expect("a key"),
            version: "1.0.0".parse().expect("a version"),
            icon: None,
            skills: None,
            files: Vec::new(),
            published_at: Timestamp(1_700_000_000_000),
            out: folder.join("dist"),
            force: false,
        });
        releases.push(packed.expect("echo packs").release_document);
    }
    let out = folder.join("catalog");
    let request =
        catalog::CatalogRequest { releases, out: out.clone(), ..catalog::CatalogRequest::default() };
    catalog::build(&request).expect("the catalog builds");
    out
}

//! The prebuilt catalogs, carried inside the program so that the first run needs
//! no guest toolchain and no network.

/// The files of a catalog: path and content.
pub(super) type Edition = &'static [(&'static str, &'static [u8])];

macro_rules! edition {
    ($folder:literal: $($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("../../../fixtures/catalog/", $folder, "/", $path)))),*]
    };
}

/// `echo` 1.0.0 and `feeds` 1.0.0.
pub(super) const FIRST: Edition = edition!("v1":
    "catalog.json",
    "artifacts/echo/1.0.0/echo-1.0.0.tar.gz",
    "artifacts/feeds/1.0.0/feeds-1.0.0.tar.gz",
);

/// `echo` 1.0.0 and `feeds` 1.1.0.
pub(super) const SECOND: Edition = edition!("v2":
    "catalog.json",
    "artifacts/echo/1.0.0/echo-1.0.0.tar.gz",
    "artifacts/feeds/1.1.0/feeds-1.1.0.tar.gz",
);

/// The artifact of `connector` in `edition`.
pub(super) fn artifact(edition: Edition, connector: &str) -> Option<&'static [u8]> {
    let folder = format!("artifacts/{connector}/");
    edition.iter().find(|(path, _)| path.starts_with(&folder)).map(|(_, bytes)| *bytes)
}

//! Guest crates become components, and the prebuilt ones are what the source says.

use std::{
    fs,
    path::{Path, PathBuf},
};

use portcullis::{
    authoring::{
        build::{BuildRequest, Built, build, componentize},
        component::ComponentInterface,
        toolchain::{Installed, Toolchain},
    },
    domain::{error::ErrorCode, manifest::Manifest},
};

use super::{component, fixture, hostile, says};

fn request(folder: PathBuf, out: &Path) -> BuildRequest {
    BuildRequest {
        folder,
        features: Vec::new(),
        no_default_features: false,
        locked: true,
        target_dir: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests")),
        out: Some(out.to_owned()),
    }
}

#[test]
fn the_sources_of_the_prebuilt_connectors_build_and_have_the_same_interface() {
    let folder = tempfile::tempdir().expect("a folder");
    for (key, version, catalog, default_features) in
        [("echo", "1.0.0", "v1", true), ("feeds", "1.0.0", "v1", false), ("feeds", "1.1.0", "v2", true)]
    {
        let out = folder.path().join(format!("{key}-{version}.wasm"));
        let mut request = request(fixture(&format!("connectors/{key}")), &out);
        request.no_default_features = !default_features;
        let built: Built = build(&request).expect("it builds");
        assert_eq!(built.problems, [], "{key} {version}");
        assert_eq!(built.world.as_deref(), Some("portcullis:connector/connector@0.1.0"));
        let bytes = fs::read(&out).expect("written");
        assert_eq!(built.size_bytes, bytes.len() as u64);
        for machine in [env!("CARGO_MANIFEST_DIR").as_bytes(), b"/.cargo/"] {
            let named = bytes.windows(machine.len()).any(|window| window == machine);
            assert!(!named, "the component names a folder of the machine that built it");
        }
        let prebuilt = ComponentInterface::read(&component(key, version, catalog)).expect("a component");
        assert_eq!(built.interface, prebuilt, "{key} {version}: write the prebuilt catalogs anew");
    }
}

#[test]
fn the_manifests_of_the_prebuilt_connectors_are_those_of_the_sources() {
    for (key, version, catalog) in
        [("echo", "1.0.0", "v1"), ("feeds", "1.0.0", "v1"), ("feeds", "1.1.0", "v2")]
    {
        let source = fs::read(fixture(&format!("connectors/{key}/connector.json"))).expect("the manifest");
        let bundle = fs::read(super::prebuilt(key, version, catalog)).expect("the bundle");
        let packed = portcullis::authoring::bundle::read(&bundle).expect("it unpacks");
        assert_eq!(
            Manifest::parse(&packed["connector.json"]).expect("a manifest"),
            Manifest::parse(&source).expect("a manifest"),
            "{key} {version}: write the prebuilt catalogs anew"
        );
    }
}

#[test]
fn a_folder_without_a_crate_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.wasm");
    for path in [folder.path().to_owned(), folder.path().join("absent")] {
        let error = build(&request(path, &out)).expect_err("there is no crate");
        says(&error, ErrorCode::InvalidRequest, &["Cargo.toml"]);
    }
    assert!(!out.exists());
}

#[test]
fn a_crate_that_does_not_build_or_makes_no_module_leaves_no_component() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.wasm");
    let attempt = |manifest: &str, source: &str| {
        let krate = tempfile::tempdir().expect("a folder");
        fs::create_dir(krate.path().join("src")).expect("a folder");
        let package = "[package]\nname = \"guest\"\nversion = \"1.0.0\"\nedition = \"2024\"\n[workspace]\n";
        fs::write(krate.path().join("Cargo.toml"), format!("{package}{manifest}")).expect("written");
        fs::write(krate.path().join("src/lib.rs"), source).expect("written");
        let mut request = request(krate.path().to_owned(), &out);
        request.locked = false;
        let error = build(&request).expect_err("it is refused");
        assert!(!out.exists());
        error
    };
    let cdylib = "[lib]\ncrate-type = [\"cdylib\"]\n";
    says(&attempt(cdylib, "nonsense"), ErrorCode::ComponentInvalid, &["does not build"]);
    says(&attempt("", ""), ErrorCode::ComponentInvalid, &["crate-type"]);
    let error = attempt(&format!("{cdylib}[dependencies]\nabsent = {{ path = \"../absent-crate\" }}\n"), "");
    says(&error, ErrorCode::ComponentInvalid, &["cannot be fetched"]);
}

#[test]
fn only_a_module_with_its_types_becomes_a_component() {
    says(
        &componentize(b"hello").expect_err("no module"),
        ErrorCode::ComponentInvalid,
        &["no component can be made"],
    );
    let wasi = wat::parse_str(r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func (param i32))))"#)
        .expect("a module");
    says(
        &componentize(&wasi).expect_err("another target"),
        ErrorCode::ComponentInvalid,
        &["wasi_snapshot_preview1"],
    );
    says(
        &componentize(&hostile("exports-nothing")).expect_err("a component already"),
        ErrorCode::ComponentInvalid,
        &["no component can be made"],
    );
}

#[test]
fn the_toolchain_on_the_path_comes_first_and_debians_second() {
    let nothing = Installed::default();
    let both = Installed { target: true, debian_web: true, ..nothing };
    assert_eq!(Toolchain::choose(both).expect("a toolchain"), Toolchain::OnPath);
    let debian = Installed { debian_web: true, rustup: true, ..nothing };
    assert_eq!(Toolchain::choose(debian).expect("a toolchain"), Toolchain::DebianWeb);
}

#[test]
fn without_a_toolchain_the_error_says_what_to_run() {
    let nothing = Installed::default();
    let rustup = "`rustup target add wasm32-unknown-unknown`";
    let apt = "`apt-get install rustc-web cargo-web rust-web-src lld-19`";
    for (installed, advice) in [
        (Installed { rustc: true, rustup: true, apt: true, ..nothing }, rustup),
        (Installed { rustc: true, apt: true, ..nothing }, apt),
        (Installed { rustc: true, ..nothing }, "install rustup"),
        (nothing, "install Rust"),
    ] {
        let error = Toolchain::choose(installed).expect_err("nothing can build");
        says(&error, ErrorCode::Unavailable, &[advice]);
        assert!(!error.retryable);
    }
}

#[test]
fn debians_toolchain_builds_the_standard_library_along() {
    let command = Toolchain::DebianWeb.build(Path::new("."));
    assert_eq!(command.get_program(), "/usr/bin/cargo");
    let arguments: Vec<_> = command.get_args().map(|one| one.to_string_lossy().into_owned()).collect();
    assert!(arguments.contains(&"-Zbuild-std=std,panic_abort".to_owned()), "{arguments:?}");
    let environment: Vec<_> =
        command.get_envs().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    for name in ["RUSTC_BOOTSTRAP", "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "PATH"] {
        assert!(environment.iter().any(|one| one == name), "{environment:?} lacks {name}");
    }
}

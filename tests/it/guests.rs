//! Builds the guests under `fixtures/`, each once for a state of its sources, and
//! makes components of them.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use portcullis::domain::digest::Sha256Digest;
use wit_component::ComponentEncoder;

/// Builds are serial: cargo would serialize them anyway.
static BUILDING: Mutex<()> = Mutex::new(());

/// The component of the guest crate at `fixtures/<path>`, with these features.
pub(crate) fn component(path: &str, features: &[&str]) -> PathBuf {
    let _turn = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("fixtures").join(path);
    let built = output_folder();
    let target = built.join(format!("{}.wasm", fingerprint(&[&folder, &root.join("wit")], features)));
    if !target.exists() {
        let module = build(&folder, &built.join("cargo"), features);
        let component = ComponentEncoder::default()
            .validate(true)
            .module(&module)
            .and_then(|mut encoder| encoder.encode())
            .expect("the guest's module makes a component");
        let partial = target.with_extension("partial");
        fs::write(&partial, component).expect("the component can be written");
        fs::rename(partial, &target).expect("the component can be put in place");
    }
    target
}

/// The component or module in text at `fixtures/<path>`.
pub(crate) fn text(path: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(path);
    let bytes = wat::parse_file(source).expect("the fixture is well-formed text");
    let target = output_folder().join(format!("{}.wasm", Sha256Digest::of(&bytes)));
    fs::write(&target, bytes).expect("the component can be written");
    target
}

fn output_folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("guests");
    fs::create_dir_all(&folder).expect("the folder of built guests can be made");
    folder
}

fn fingerprint(folders: &[&Path], features: &[&str]) -> Sha256Digest {
    let mut files = BTreeSet::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| folder.to_path_buf()).collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a source folder can be read").flatten() {
            let path = entry.path();
            match path.file_name().and_then(|name| name.to_str()) {
                Some("target") => {}
                _ if path.is_dir() => open.push(path),
                _ => {
                    files.insert(path);
                }
            }
        }
    }
    let mut all = features.join(",").into_bytes();
    for file in files {
        all.extend_from_slice(file.as_os_str().as_encoded_bytes());
        all.extend_from_slice(Sha256Digest::of(&fs::read(&file).expect("a source can be read")).as_bytes());
    }
    Sha256Digest::of(&all)
}

fn build(folder: &Path, target: &Path, features: &[&str]) -> Vec<u8> {
    let mut plain = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    if run(&mut plain, folder, target, features, &[]) {
        return module(folder, target);
    }
    // Without the target in the toolchain, Debian's own toolchain can build its
    // standard library.
    let mut debian = Command::new("/usr/bin/cargo");
    debian
        .env("PATH", "/usr/bin:/bin")
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "wasm-ld-19")
        .env_remove("RUSTC")
        .env_remove("RUSTUP_TOOLCHAIN");
    assert!(
        Path::new("/usr/bin/cargo").exists()
            && run(&mut debian, folder, target, features, &["-Zbuild-std=std,panic_abort"]),
        "the guest {} does not build; `rustup target add wasm32-unknown-unknown`, or see its messages above",
        folder.display()
    );
    module(folder, target)
}

fn run(cargo: &mut Command, folder: &Path, target: &Path, features: &[&str], more: &[&str]) -> bool {
    cargo
        .current_dir(folder)
        .args(["build", "--release", "--locked", "--target", "wasm32-unknown-unknown"])
        .args(more)
        .arg("--features")
        .arg(features.join(","))
        .env("CARGO_TARGET_DIR", target)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .is_ok_and(|status| status.success())
}

fn module(folder: &Path, target: &Path) -> Vec<u8> {
    let name = folder.file_name().and_then(|name| name.to_str()).expect("a folder name").replace('-', "_");
    let path = target.join("wasm32-unknown-unknown/release").join(name).with_extension("wasm");
    fs::read(path).expect("the guest's module can be read")
}

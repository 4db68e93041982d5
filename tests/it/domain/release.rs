//! A release is an identity over its manifest and its bytes (design: release digest).

use portcullis::domain::{
    digest::Sha256Digest,
    error::ErrorCode,
    manifest::Manifest,
    release::{Artifact, MEDIA_TYPE_BUNDLE, Release},
    timestamp::Timestamp,
};

use super::manifest;

/// Changes one part of a release.
type Tamper = fn(&mut Release);

pub(crate) fn release(version: &str) -> Release {
    let manifest = Manifest::parse(manifest::valid().to_string().as_bytes()).expect("a valid manifest");
    let artifact = Artifact {
        key: format!("artifacts/echo/{version}/echo.tar.gz"),
        sha256: Sha256Digest::of(version.as_bytes()),
        size_bytes: 10,
        media_type: MEDIA_TYPE_BUNDLE.into(),
        object_version: None,
    };
    let key = "echo".parse().expect("a key");
    Release::assemble(key, version.parse().expect("a version"), manifest, artifact, Timestamp(1))
        .expect("a release")
}

#[test]
fn an_assembled_release_is_valid_and_survives_its_json_form() {
    let release = release("1.0.0");
    release.validate().expect("it is valid");
    let json = serde_json::to_string(&release).expect("it has a JSON form");
    assert_eq!(serde_json::from_str::<Release>(&json).expect("and reads it back"), release);
}

#[test]
fn the_digests_do_not_depend_on_the_order_of_fields() {
    let mut shuffled = serde_json::Map::new();
    let original = manifest::valid();
    for (name, value) in original.as_object().expect("an object").iter().rev() {
        shuffled.insert(name.clone(), value.clone());
    }
    let one = Manifest::parse(original.to_string().as_bytes()).expect("valid");
    let other = Manifest::parse(serde_json::Value::Object(shuffled).to_string().as_bytes()).expect("valid");
    assert_eq!(one.digest().expect("a digest"), other.digest().expect("a digest"));
}

#[test]
fn the_release_digest_covers_key_version_manifest_and_artifact() {
    let tampered: [(&str, Tamper); 6] = [
        ("key", |release| release.connector_key = "other".parse().expect("a key")),
        ("version", |release| release.version = "1.0.1".parse().expect("a version")),
        ("manifest", |release| release.manifest.display_name = "Other".into()),
        ("sha256", |release| release.artifact.sha256 = Sha256Digest::of(b"other")),
        ("size", |release| release.artifact.size_bytes = 11),
        ("media type", |release| release.artifact.media_type = "application/wasm".into()),
    ];
    for (what, tamper) in tampered {
        let mut release = release("1.0.0");
        tamper(&mut release);
        let error = release.validate().expect_err(what);
        assert_eq!((error.code, error.retryable), (ErrorCode::InvalidManifest, false), "{what}");
    }
}

#[test]
fn a_release_with_an_unsafe_artifact_key_or_no_bytes_is_rejected() {
    for key in ["../x", "/x", "a\\b", "https://example.org/x", ""] {
        let mut release = release("1.0.0");
        release.artifact.key = key.into();
        assert!(release.validate().is_err_and(|error| error.message.contains("artifact.key")), "{key:?}");
    }
    let mut empty = release("1.0.0");
    empty.artifact.size_bytes = 0;
    assert!(empty.validate().is_err_and(|error| error.message.contains("sizeBytes")));
}

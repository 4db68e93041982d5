//! Artifacts out of a directory: only regular files inside it.

use std::{fs, os::unix::fs::symlink, process::Command};

use portcullis::domain::error::ErrorCode;

use super::world::{World, honest, verdict};

/// What lies where the artifact should be, and how it gets there.
type Case<'a> = (&'a str, Box<dyn Fn() + 'a>);

#[tokio::test]
async fn what_is_no_readable_file_of_the_catalog_is_unavailable_for_good() {
    let world = World::new();
    let release = world.publish_honest("1.0.0");
    let path = world.catalog().join(&release.artifact.key);
    let outside = tempfile::TempDir::new().expect("a folder");
    fs::write(outside.path().join("bundle"), honest("1.0.0")).expect("a file");
    let put: [Case<'_>; 4] = [
        ("missing", Box::new(|| {})),
        ("a folder", Box::new(|| fs::create_dir(&path).expect("a folder"))),
        (
            "a link out of the catalog",
            Box::new(|| symlink(outside.path().join("bundle"), &path).expect("a link")),
        ),
        (
            "a pipe",
            Box::new(|| assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success())),
        ),
    ];
    for (name, put) in put {
        let _there = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        put();
        let error = world.refuses(&release).await;
        assert_eq!(verdict(&error), (ErrorCode::ArtifactUnavailable, false), "{name}");
    }
}

#[tokio::test]
async fn a_link_within_the_catalog_is_followed() {
    let world = World::new();
    let release = world.publish_honest("1.0.0");
    let path = world.catalog().join(&release.artifact.key);
    fs::rename(&path, world.catalog().join("stored")).expect("moved");
    symlink("stored", &path).expect("a link");
    world.install("one", &release).await.expect("installed");
}

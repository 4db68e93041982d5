//! What an archive may not be. Each refusal has its code, leaves no file behind
//! and lets the previous release be.

use std::{fs, io::Write as _};

use flate2::{Compression, write::GzEncoder};
use portcullis::{
    artifacts::UnpackLimits,
    domain::{
        error::ErrorCode::{
            self, ArtifactDigestMismatch, ArtifactLimitExceeded, ArtifactMalformed, ArtifactManifestMismatch,
            ArtifactMediaTypeUnsupported, ArtifactSizeMismatch, ArtifactUnsafeEntry,
        },
        manifest::Manifest,
        release::{MEDIA_TYPE_BUNDLE, Release},
        timestamp::Timestamp,
    },
    ports::ReleaseInstaller as _,
};
use tar::EntryType;

use super::{
    archive::{Tar, gzip, noise},
    world::{World, bare, describe, honest, manifest, verdict},
};

fn small_limits() -> UnpackLimits {
    UnpackLimits {
        entries: 12,
        file_bytes: 64 * 1024,
        expanded_bytes: 256 * 1024,
        ratio: 20,
        ratio_floor_bytes: 64 * 1024,
    }
}

fn bundle() -> Tar {
    Tar::bundle(&manifest())
}

/// Installs a good release, then meets the bad one.
async fn refused(world: &World, name: &str, bytes: &[u8], code: ErrorCode) -> String {
    let good = world.publish_honest("1.0.0");
    world.commit("good", &good).await.expect("the good one is installed");
    let bad = world.publish("2.0.0", bytes);
    let error = world.refuses(&bad).await;
    assert_eq!(verdict(&error), (code, false), "{name}: {error}");
    assert!(fs::read_dir(world.root().join("staging")).expect("staging").next().is_none(), "{name}");
    world.installer.open(&good).await.expect("the previous release is still there");
    error.message
}

#[tokio::test]
async fn s315_to_s318_entries_that_are_not_plain_files_inside_the_folder_are_rejected() {
    let long = "d/".repeat(600) + "x";
    let cases: Vec<(&str, Tar)> = vec![
        ("parent", bundle().file("../escape", b"x")),
        ("parent inside", bundle().file("skills/../../escape", b"x")),
        ("parent folder", bundle().folder("../escape/")),
        ("absolute", bundle().file("/tmp/portcullis-escape", b"x")),
        ("absolute folder", bundle().folder("/tmp/portcullis-escape/")),
        ("backslash", bundle().file("skills\\escape", b"x")),
        ("drive", bundle().file("C:escape", b"x")),
        ("stream", bundle().file("component.wasm:hidden", b"x")),
        ("trailing dot", bundle().file("name.", b"x")),
        ("trailing space", bundle().file("name ", b"x")),
        ("device name", bundle().file("con", b"x")),
        ("device name with extension", bundle().file("skills/NUL.txt", b"x")),
        ("numbered device", bundle().file("com1", b"x")),
        ("control character", bundle().file("a\nb", b"x")),
        ("empty segment", bundle().file("a//b", b"x")),
        ("dot segment", bundle().file("a/./b", b"x")),
        ("no name", bundle().file("", b"x")),
        ("too long a name", bundle().long(&long, b"x")),
        ("long name that escapes", bundle().file(&format!("{}/../../../e", "a".repeat(80)), b"x")),
        ("symbolic link", bundle().entry("link", EntryType::Symlink, b"", "/etc/passwd")),
        ("symbolic link within", bundle().entry("link", EntryType::Symlink, b"", "component.wasm")),
        ("hard link", bundle().entry("link", EntryType::Link, b"", "component.wasm")),
        ("character device", bundle().entry("tty", EntryType::Char, b"", "")),
        ("block device", bundle().entry("disk", EntryType::Block, b"", "")),
        ("pipe", bundle().entry("pipe", EntryType::Fifo, b"", "")),
        ("contiguous file", bundle().entry("odd", EntryType::Continuous, b"x", "")),
        ("global header", bundle().entry("global", EntryType::XGlobalHeader, b"9 a=b\n\n\n\n", "")),
        ("unknown type", bundle().entry("odd", EntryType::new(b'Z'), b"x", "")),
        ("folder with contents", bundle().entry("odd", EntryType::Directory, b"x", "")),
        ("file named like a folder", bundle().file("odd/", b"x")),
        ("same file twice", bundle().file("component.wasm", b"x")),
        ("same file but for case", bundle().file("Component.WASM", b"x")),
        ("same file but for case, not ASCII", bundle().file("Ä", b"x").file("ä", b"x")),
        ("same folder twice", bundle().folder("a/").folder("a/")),
        ("same folder but for case", bundle().folder("Skills/")),
        ("a file in a folder but for case", bundle().file("SKILLS/x", b"x")),
        ("a file beneath a file", bundle().file("component.wasm/x", b"x")),
        ("a folder where a file is", bundle().folder("component.wasm/")),
        ("a file where a folder is", bundle().file("skills", b"x")),
        ("a link, then a file through it", {
            bundle().entry("out", EntryType::Symlink, b"", "/tmp").file("out/portcullis-escape", b"x")
        }),
    ];
    let world = World::new();
    for (name, tar) in cases {
        let message = refused(&world, name, &tar.gzip(), ArtifactUnsafeEntry).await;
        assert!(message.len() < 512, "{name}: a hostile name does not flood the message");
    }
    assert!(!std::path::Path::new("/tmp/portcullis-escape").exists());
    assert!(!world.root().join("staging/escape").exists() && !world.root().join("escape").exists());
}

#[tokio::test]
async fn what_is_no_whole_archive_is_malformed() {
    let whole = honest("2.0.0");
    let tar = bundle().bytes();
    let followed = |tail: &[u8]| [whole.as_slice(), tail].concat();
    let mut broken = whole.clone();
    let middle = broken.len() / 2;
    broken[middle] ^= 0x40;
    let mut checksum = whole.clone();
    let crc = checksum.len() - 6;
    checksum[crc] ^= 1;
    let mut header = tar.clone();
    header[3] ^= 1;
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("not gzip", b"this is no archive at all".to_vec()),
        ("tar without gzip", tar.clone()),
        ("gzip of something else", gzip(b"this is no archive at all")),
        ("gzip of nothing", gzip(b"")),
        ("truncated", whole[..whole.len() - 9].to_vec()),
        ("truncated in the middle", whole[..whole.len() / 2].to_vec()),
        ("a broken stream", broken),
        ("a wrong checksum", checksum),
        ("a wrong header checksum", gzip(&header)),
        ("a tar file cut after an entry", gzip(&tar[..1024])),
        ("a tar file cut within an entry", gzip(&tar[..700])),
        ("trailing garbage", followed(b"garbage")),
        ("trailing zeros", followed(&[0; 16])),
        ("a second gzip member", followed(&gzip(&bundle().bytes()))),
        ("an entry after the end", gzip(&[tar.as_slice(), bundle().bytes().as_slice()].concat())),
        ("garbage after the end", gzip(&[tar.as_slice(), b"garbage"].concat())),
        ("no component", Tar::new().file("connector.json", manifest().as_bytes()).gzip()),
        ("a folder for a component", {
            Tar::new().file("connector.json", manifest().as_bytes()).folder("component.wasm/").gzip()
        }),
    ];
    let world = World::new();
    for (name, bytes) in cases {
        refused(&world, name, &bytes, ArtifactMalformed).await;
    }
}

#[tokio::test]
async fn s330_an_archive_over_a_limit_is_rejected() {
    let mut many = bundle();
    for number in 0..12 {
        many = many.file(&format!("f{number}"), b"");
    }
    let mut long_name = Tar::new();
    long_name = long_name.entry("././@LongLink", EntryType::GNULongName, &noise(300 * 1024), "");
    let mut extension = Tar::new();
    extension = extension.entry("x", EntryType::XHeader, &noise(300 * 1024), "");
    let mut padded = bundle().bytes();
    padded.resize(padded.len() + (2 << 20), 0);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("entries", many.gzip()),
        ("implied folders", bundle().file("a/b/c/d/e/f/g/h/i/j/k", b"x").gzip()),
        ("one file", bundle().file("big", &noise(64 * 1024 + 1)).gzip()),
        ("all files", (0..5).fold(bundle(), |tar, at| tar.file(&format!("f{at}"), &noise(60_000))).gzip()),
        ("ratio", (0..4).fold(bundle(), |tar, at| tar.file(&format!("f{at}"), &[0; 60_000])).gzip()),
        ("ratio of padding", gzip(&padded)),
        ("a long name", long_name.file("f", b"x").gzip()),
        ("an extension", extension.file("f", b"x").gzip()),
    ];
    let world = World::with_limits(small_limits());
    for (name, bytes) in cases {
        refused(&world, name, &bytes, ArtifactLimitExceeded).await;
    }
}

#[tokio::test]
async fn a_bomb_of_a_few_megabytes_is_stopped_under_the_default_limits() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bundle().bytes()[..1024]).expect("compressed");
    let mut header = tar::Header::new_gnu();
    header.set_path("zeros").expect("a name");
    header.set_size(60 << 20);
    header.set_cksum();
    encoder.write_all(header.as_bytes()).expect("compressed");
    for _ in 0..60 {
        encoder.write_all(&vec![0; 1 << 20]).expect("compressed");
    }
    let bomb = encoder.finish().expect("compressed");
    assert!(bomb.len() < 200_000);
    let message = refused(&World::new(), "bomb", &bomb, ArtifactLimitExceeded).await;
    assert!(message.contains("200 times"), "{message}");
}

#[tokio::test]
async fn a_mutated_archive_is_installed_whole_or_refused_with_a_code_of_its_own() {
    let world = World::with_limits(small_limits());
    let good = world.publish_honest("1.0.0");
    world.commit("good", &good).await.expect("installed");
    let tar = bundle().file("notes/a.txt", b"a").long(&"long-name-".repeat(15), b"").bytes();
    let positions = noise(2 * 120)
        .chunks(2)
        .map(|two| usize::from(two[0]) << 8 | usize::from(two[1]))
        .collect::<Vec<_>>();
    let (mut accepted, mut refused) = (0, 0);
    for (round, position) in positions.into_iter().enumerate() {
        let mut mutated = tar.clone();
        // In the headers, where the decisions are: names, sizes, types.
        let field = if round % 2 == 0 { position % 16 } else { 120 + position % 40 };
        let at = round % 4 * 2 * 512 + field;
        mutated[at] ^= 1 << (position % 8);
        mend_checksum(&mut mutated, at / 512 * 512);
        let release = world.publish("2.0.0", &gzip(&mutated));
        let before = world.disk();
        match world.install("mutated", &release).await {
            Ok(_) => accepted += 1,
            Err(error) => {
                refused += 1;
                assert!(error.code.as_str().starts_with("artifact_") && !error.retryable, "{at}: {error}");
                assert!(world.disk() == before, "{at}: nothing changed");
            }
        }
    }
    assert!(accepted > 10 && refused > 10, "both happen: {accepted} and {refused}");
    world.installer.open(&good).await.expect("the previous release is still there");
}

/// Makes the checksum of the header at `start` hold again.
fn mend_checksum(tar: &mut [u8], start: usize) {
    let header = &mut tar[start..start + 512];
    if header[257..262] != *b"ustar" {
        return;
    }
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
}

#[tokio::test]
async fn at_its_limits_an_archive_is_accepted() {
    let world = World::with_limits(small_limits());
    // connector.json, component.wasm, skills, skills/echo, SKILL.md and seven more.
    let full = (0..7).fold(bundle(), |tar, at| tar.file(&format!("f{at}"), b""));
    world.install("entries", &world.publish("1.0.0", &full.gzip())).await.expect("as many as may be");
    let large = bundle().file("big", &noise(64 * 1024));
    world.install("file", &world.publish("1.0.1", &large.gzip())).await.expect("as large as may be");
    let tiny = bundle().file("zeros", &[0; 20_000]);
    let bytes = tiny.gzip();
    assert!(bytes.len() * 20 < 20_000, "its ratio is over the limit");
    world.install("floor", &world.publish("1.0.2", &bytes)).await.expect("too small to be a bomb");
}

#[tokio::test]
async fn s331_a_packed_manifest_that_is_not_the_released_one_is_rejected() {
    let changed = manifest().replace("Echo", "Echo, really");
    let cases: Vec<(&str, Tar)> = vec![
        ("another", Tar::bundle(&changed)),
        ("unreadable", Tar::bundle("{")),
        ("with an unknown field", Tar::bundle(&manifest().replacen('{', "{\"extra\": 1,", 1))),
        ("empty", Tar::bundle("")),
        ("missing", Tar::new().file("component.wasm", b"x")),
        ("a folder", Tar::new().file("component.wasm", b"x").folder("connector.json/")),
        (
            "only in another case",
            Tar::new().file("Connector.json", manifest().as_bytes()).file("component.wasm", b"x"),
        ),
    ];
    let world = World::new();
    for (name, tar) in cases {
        refused(&world, name, &tar.gzip(), ArtifactManifestMismatch).await;
    }
}

#[tokio::test]
async fn a_packed_manifest_that_says_the_same_in_another_order_is_the_released_one() {
    let value: serde_json::Value = serde_json::from_str(&manifest()).expect("json");
    let pretty = serde_json::to_string_pretty(&value).expect("json");
    assert_ne!(pretty, manifest());
    let world = World::new();
    world.install("pretty", &world.publish("1.0.0", &Tar::bundle(&pretty).gzip())).await.expect("the same");
}

#[tokio::test]
async fn s328_bytes_that_are_not_the_released_ones_are_rejected() {
    let world = World::new();
    let good = world.publish_honest("1.0.0");
    world.commit("good", &good).await.expect("installed");
    let bad = world.publish_honest("2.0.0");
    let honest = honest("2.0.0");
    let mut flipped = honest.clone();
    flipped[20] ^= 1;
    let longer = [honest.as_slice(), b"x"].concat();
    for (name, bytes, code) in [
        ("flipped", flipped.as_slice(), ArtifactDigestMismatch),
        ("short", &honest[..honest.len() - 1], ArtifactSizeMismatch),
        ("long", longer.as_slice(), ArtifactSizeMismatch),
        ("empty", b"".as_slice(), ArtifactSizeMismatch),
    ] {
        fs::write(world.catalog().join(&bad.artifact.key), bytes).expect("tampered");
        let error = world.refuses(&bad).await;
        assert_eq!(verdict(&error), (code, false), "{name}");
    }
    world.installer.open(&good).await.expect("the previous release is still there");
    fs::write(world.catalog().join(&bad.artifact.key), &honest).expect("mended");
    world.install("again", &bad).await.expect("the released bytes are accepted");
}

#[tokio::test]
async fn an_artifact_that_could_never_be_unpacked_is_refused_before_it_is_fetched() {
    let world = World::new();
    let zip = describe("echo", "1.0.0", b"PK", "application/zip");
    let mut huge = bare("echo", "1.0.0", b"x").artifact;
    huge.size_bytes = (64 << 20) + 1;
    let huge_component = reassemble(&zip, huge.clone());
    huge.media_type = MEDIA_TYPE_BUNDLE.into();
    huge.size_bytes = (256 << 20) + 1;
    let huge_bundle = reassemble(&zip, huge);
    for (release, code) in [
        (zip, ArtifactMediaTypeUnsupported),
        (huge_component, ArtifactLimitExceeded),
        (huge_bundle, ArtifactLimitExceeded),
    ] {
        assert_eq!(verdict(&world.refuses(&release).await), (code, false));
    }
    assert_eq!(world.fetches(), 0);
}

fn reassemble(like: &Release, artifact: portcullis::domain::release::Artifact) -> Release {
    let manifest = Manifest::parse(manifest().as_bytes()).expect("a manifest");
    Release::assemble(like.connector_key.clone(), like.version.clone(), manifest, artifact, Timestamp(1))
        .expect("valid")
}

#[tokio::test]
async fn s312_a_release_that_breaks_a_rule_is_refused_wherever_it_is_named() {
    let world = World::new();
    let mut release = world.publish_honest("1.0.0");
    world.commit("good", &release).await.expect("installed");
    release.manifest.icon_url = "ftp://example.org/icon".into();
    let before = world.disk();
    let errors = [
        world.install("bad", &release).await.expect_err("install"),
        world.installer.inspect(&release).await.expect_err("inspect"),
        world.installer.open(&release).await.expect_err("open"),
    ];
    for error in errors {
        assert_eq!(verdict(&error), (ErrorCode::InvalidManifest, false));
    }
    assert!(world.disk() == before);
}

#[tokio::test]
async fn a_version_too_long_for_a_folder_is_refused() {
    let world = World::new();
    let version = format!("1.0.0-{}", "a".repeat(130));
    let release = describe("echo", &version, &honest("1"), MEDIA_TYPE_BUNDLE);
    assert_eq!(verdict(&world.refuses(&release).await), (ErrorCode::InvalidManifest, false));
    assert_eq!(world.fetches(), 0);
}

//! Artifacts from a web server.

use std::sync::Arc;

use portcullis::{
    artifacts::catalog::StaticCatalog,
    domain::{
        error::ErrorCode::{
            ArtifactDigestMismatch, ArtifactMediaTypeUnsupported, ArtifactSizeMismatch, ArtifactUnavailable,
            InvalidManifest, InvalidRequest,
        },
        release::{MEDIA_TYPE_BUNDLE, Release},
    },
    ports::ReleaseInstaller as _,
};

use super::{
    server::{Answer, Server},
    world::{World, bare, describe, honest, verdict},
};

const PATH: &str = "/catalog/echo-1.0.0.artifact";

async fn world() -> (Server, World, Release, Vec<u8>) {
    let server = Server::start().await;
    let catalog = StaticCatalog::new(&server.url, &[]).expect("a catalog");
    let bytes = honest("1.0.0");
    let release = describe("echo", "1.0.0", &bytes, MEDIA_TYPE_BUNDLE);
    (server, World::with_fetcher(Arc::new(catalog)), release, bytes)
}

#[tokio::test]
async fn s323_a_plain_fetch_succeeds() {
    let (server, world, release, bytes) = world().await;
    server.set(PATH, Answer::ok(&bytes));
    world.commit("one", &release).await.expect("installed");
    world.installer.open(&release).await.expect("opened");
    assert_eq!(server.seen(), [PATH]);
    let headers = server.last_headers();
    assert!(headers["user-agent"].to_str().expect("text").starts_with("portcullis/"));
    assert_eq!(headers["accept-encoding"], "identity");
    assert!(!headers.contains_key("authorization") && !headers.contains_key("cookie"));
}

#[tokio::test]
async fn lengths_and_types_that_say_nothing_are_no_obstacle() {
    let (server, world, release, bytes) = world().await;
    let chunked = Answer { chunked: true, ..Answer::ok(&bytes) };
    let answers = [
        chunked.clone(),
        chunked.with("content-type", "application/octet-stream"),
        Answer::ok(&bytes).with("content-type", "application/gzip"),
        Answer::ok(&bytes).with("content-type", "Application/VND.portcullis.bundle.v1.tar+gzip; charset=x"),
        Answer::ok(&bytes).with("content-type", ""),
    ];
    for (at, answer) in answers.into_iter().enumerate() {
        server.set(PATH, answer);
        world.install("one", &release).await.expect("installed");
        world.uninstall("echo").await.expect("removed");
        assert_eq!(world.fetches(), at + 1);
    }
}

#[tokio::test]
async fn s328_answers_that_are_not_the_artifact_are_refused() {
    let (server, world, release, bytes) = world().await;
    let mut flipped = bytes.clone();
    flipped[30] ^= 1;
    let longer = [bytes.as_slice(), b"x"].concat();
    let shorter = &bytes[..bytes.len() - 1];
    let chunked = |body: &[u8]| Answer { chunked: true, ..Answer::ok(body) };
    let cases = [
        ("flipped", Answer::ok(&flipped), ArtifactDigestMismatch, false),
        ("announced too long", Answer::ok(&longer), ArtifactSizeMismatch, false),
        ("announced too short", Answer::ok(shorter), ArtifactSizeMismatch, false),
        ("too long", chunked(&longer), ArtifactSizeMismatch, false),
        ("far too long", chunked(&vec![0; 4 << 20]), ArtifactSizeMismatch, false),
        ("too short", chunked(shorter), ArtifactSizeMismatch, false),
        ("nothing", chunked(b""), ArtifactSizeMismatch, false),
        ("broken off", Answer { broken: true, ..Answer::ok(shorter) }, ArtifactUnavailable, true),
        ("a page", Answer::ok(&bytes).with("content-type", "text/html"), ArtifactMediaTypeUnsupported, false),
        (
            "zip",
            Answer::ok(&bytes).with("content-type", "application/zip"),
            ArtifactMediaTypeUnsupported,
            false,
        ),
        (
            "wasm",
            Answer::ok(&bytes).with("content-type", "application/wasm"),
            ArtifactMediaTypeUnsupported,
            false,
        ),
        ("partial", Answer { status: 206, ..Answer::ok(&bytes) }, ArtifactUnavailable, false),
        ("created", Answer { status: 201, ..Answer::ok(&bytes) }, ArtifactUnavailable, false),
        ("not modified", Answer { status: 304, ..Answer::default() }, ArtifactUnavailable, false),
        ("unauthorized", Answer::status(401), ArtifactUnavailable, false),
        ("forbidden", Answer::status(403), ArtifactUnavailable, false),
        ("not found", Answer::status(404), ArtifactUnavailable, false),
        ("too many", Answer::status(429), ArtifactUnavailable, true),
        ("server error", Answer::status(500), ArtifactUnavailable, true),
        ("unavailable", Answer::status(503), ArtifactUnavailable, true),
    ];
    for (name, answer, code, retryable) in cases {
        server.set(PATH, answer);
        let error = world.refuses(&release).await;
        assert_eq!(verdict(&error), (code, retryable), "{name}: {error}");
        assert!(!error.message.contains("<html>"), "{name}: what a server says is not repeated");
    }
    server.set(PATH, Answer::ok(&bytes));
    world.install("one", &release).await.expect("the released bytes are accepted afterwards");
}

#[tokio::test]
async fn a_bare_component_may_come_with_its_own_type_or_a_general_one() {
    let (server, world, ..) = world().await;
    let release = bare("echo", "1.0.0", b"\0asm");
    for (served, accepted) in
        [("application/wasm", true), ("application/octet-stream", true), ("application/gzip", false)]
    {
        server.set(PATH, Answer::ok(b"\0asm").with("content-type", served));
        assert_eq!(world.install("one", &release).await.is_ok(), accepted, "{served}");
        world.uninstall("echo").await.expect("removed");
    }
}

#[tokio::test]
async fn s326_s327_redirects_stay_within_the_origin_and_are_few() {
    let (server, world, release, bytes) = world().await;
    let other = Server::start().await;
    other.set("/catalog/stolen", Answer::ok(&bytes));
    other.set(PATH, Answer::ok(&bytes));
    let port = server.url.rsplit(':').next().expect("a port").trim_end_matches("/catalog/").to_owned();
    let refused = [
        format!("{}stolen", other.url),
        format!("https://127.0.0.1:{port}{PATH}"),
        format!("http://localhost:{port}{PATH}"),
        format!("http://user@127.0.0.1:{port}{PATH}"),
        format!("//127.0.0.2:{port}{PATH}"),
        "file:///etc/passwd".into(),
        "http://".into(),
    ];
    for location in refused {
        server.set(PATH, Answer::redirect(&location));
        let error = world.refuses(&release).await;
        assert_eq!(verdict(&error), (ArtifactUnavailable, false), "{location}: {error}");
    }
    assert!(other.seen().is_empty(), "nobody was asked elsewhere");
    server.set(PATH, Answer { status: 302, ..Answer::default() });
    assert_eq!(verdict(&world.refuses(&release).await), (ArtifactUnavailable, false), "no location");

    for (from, to) in [(PATH, "/a"), ("/a", "b"), ("/b", "/c"), ("/c", "/d")] {
        server.set(from, Answer::redirect(to));
    }
    server.set("/d", Answer::ok(&bytes));
    let error = world.refuses(&release).await;
    assert_eq!(verdict(&error), (ArtifactUnavailable, false));
    assert!(error.message.contains("more than 3"), "{error}");
    assert!(!server.seen().contains(&"/d".to_owned()), "the fourth is not followed");
    server.set("/c", Answer::ok(&bytes));
    world.install("one", &release).await.expect("three are");
}

#[tokio::test]
async fn s324_a_key_that_leaves_the_catalog_is_never_asked_for() {
    let (server, world, release, _) = world().await;
    for key in ["../secret", "/etc/passwd", "a\\b", "a/../b", "http://example.org/x", "./x", "a//b", ""] {
        let mut release = release.clone();
        release.artifact.key = key.into();
        assert_eq!(verdict(&world.refuses(&release).await), (InvalidManifest, false), "{key:?}");
    }
    assert!(server.seen().is_empty());
    // What is part of a name stays part of it.
    let mut release = release;
    release.artifact.key = "dir/a b?c#d%2e%2e".into();
    world.refuses(&release).await;
    assert_eq!(server.seen(), ["/catalog/dir/a%20b%3Fc%23d%252e%252e"]);
}

#[tokio::test]
async fn a_server_that_is_gone_may_come_back() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    drop(listener);
    let world = World::with_fetcher(Arc::new(StaticCatalog::new(&url, &[]).expect("a catalog")));
    let release = describe("echo", "1.0.0", &honest("1.0.0"), MEDIA_TYPE_BUNDLE);
    assert_eq!(verdict(&world.refuses(&release).await), (ArtifactUnavailable, true));
}

#[tokio::test]
async fn a_catalog_url_is_https_or_a_host_the_operator_named() {
    let named = ["Catalog.Internal".to_owned()];
    for url in [
        "https://example.org/catalog/",
        "https://example.org",
        "https://example.org:8443/a/b/catalog.json",
        "http://localhost:80/x",
        "http://127.9.9.9/x",
        "http://[::1]:8080/",
        "http://catalog.internal:8080/x",
    ] {
        StaticCatalog::new(url, &named).expect(url);
    }
    for url in [
        "http://example.org/catalog/",
        "http://localhost.example.org/",
        "http://10.0.0.1/",
        "http://catalog.internal.example.org/",
        "ftp://example.org/",
        "file:///etc",
        "https://user@example.org/",
        "https://user:secret@example.org/",
        "https://example.org/?token=secret",
        "https://example.org/#x",
        "https://",
        "",
        "  ",
    ] {
        let error = StaticCatalog::new(url, &named).expect_err(url);
        assert_eq!(verdict(&error), (InvalidRequest, false), "{url}");
        assert!(!error.message.contains("secret"), "{error}");
    }
    let named = StaticCatalog::new("https://example.org/a/catalog.json", &[]).expect("a catalog");
    assert_eq!(named.name(), "https://example.org/a/");
}

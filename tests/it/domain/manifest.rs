//! The rules of a manifest (J.10, 184 to 219 as far as they apply to components
//! and remote servers).

use portcullis::domain::{error::ErrorCode, manifest::Manifest};
use serde_json::{Value, json};

pub(crate) fn valid() -> Value {
    json!({
        "schemaVersion": "1",
        "displayName": "Echo",
        "iconUrl": "https://example.org/echo.svg",
        "permissions": ["echo:read", "network.fetch:*"],
        "authorizationKind": "none",
        "implementation": {
            "kind": "wasm_component",
            "world": "portcullis:connector/connector@0.1.0",
            "allowedHosts": ["example.org"],
            "limits": { "memoryBytes": 16_777_216, "cpuMs": 500 }
        }
    })
}

fn remote() -> Value {
    let mut manifest = valid();
    manifest["requiredCapabilities"] = json!(["tools"]);
    manifest["implementation"] = json!({
        "kind": "remote_streamable_http",
        "endpoint": "https://mcp.example.org/mcp",
        "authentication": "none",
        "allowedHosts": ["mcp.example.org"]
    });
    manifest
}

fn parse(manifest: &Value) -> Result<Manifest, portcullis::domain::error::Error> {
    Manifest::parse(manifest.to_string().as_bytes())
}

/// Sets the value at a JSON pointer; a missing last segment is added.
fn with(mut manifest: Value, pointer: &str, value: Value) -> Value {
    let (parent, last) = pointer.rsplit_once('/').expect("a pointer");
    manifest.pointer_mut(parent).expect("the parent is there")[last] = value;
    manifest
}

fn refused(manifest: &Value, part_of_message: &str) {
    let error = parse(manifest).expect_err(part_of_message);
    assert_eq!((error.code, error.retryable), (ErrorCode::InvalidManifest, false));
    assert!(error.message.contains(part_of_message), "{:?} does not say {part_of_message:?}", error.message);
}

#[test]
fn s184_s186_a_manifest_of_each_kind_is_accepted() {
    parse(&valid()).expect("a component");
    parse(&remote()).expect("a remote server");
}

#[test]
fn an_inline_icon_is_accepted_and_a_large_or_odd_one_is_not() {
    let icon = |text: &str| with(valid(), "/iconUrl", json!(text));
    parse(&icon("data:image/svg+xml;base64,PHN2Zy8+")).expect("a small SVG");
    for odd in
        ["data:text/html;base64,PHN2Zy8+", "data:image/png;base64,", "data:image/png;base64,!!", "data:,x"]
    {
        refused(&icon(odd), "iconUrl");
    }
    let large = format!("data:image/png;base64,{}", "AAAA".repeat(44_000));
    refused(&icon(&large), "128 KiB");
}

#[test]
fn s185_each_bad_icon_is_rejected() {
    let long = format!("https://example.org/{}", "x".repeat(2048));
    for icon in [
        "",
        " https://example.org/i.png",
        "http://example.org/i.png",
        "https:///i.png",
        "https://u:p@example.org/i",
        &long,
    ] {
        refused(&with(valid(), "/iconUrl", json!(icon)), "iconUrl");
    }
}

#[test]
fn s188_an_unknown_kind_is_rejected() {
    refused(&with(valid(), "/implementation/kind", json!("managed_stdio")), "managed_stdio");
}

#[test]
fn an_unknown_field_is_rejected_by_name() {
    refused(&with(valid(), "/surprise", json!(1)), "surprise");
    refused(&with(valid(), "/implementation/surprise", json!(1)), "surprise");
    refused(&with(valid(), "/implementation/limits/surprise", json!(1)), "surprise");
}

#[test]
fn s189_to_s193_aliases() {
    let aliases = |aliases: Value| with(valid(), "/agentRouting", json!({ "aliases": aliases }));
    parse(&aliases(json!(["E-Mail", "почта", "邮件", "ईमेल", "a_b.c+d&e/f (g)"]))).expect("several scripts");
    refused(&aliases(json!([])), "aliases");
    refused(&aliases(json!([""])), "alias");
    refused(&aliases(json!(["Mail", "mail"])), "twice");
    for odd in [" mail", "mail ", "ma\nil", "`mail`"] {
        refused(&aliases(json!([odd])), "alias");
    }
    refused(&aliases(json!(["x".repeat(49)])), "48");
    let thirteen: Vec<String> = (0..13).map(|number| format!("alias {number}")).collect();
    refused(&aliases(json!(thirteen)), "12");
}

#[test]
fn s195_s196_a_remote_manifest_breaks_a_rule() {
    let cases = [
        ("/implementation/endpoint", json!("http://mcp.example.org/mcp"), "https"),
        ("/implementation/endpoint", json!("https://other.example.org/mcp"), "allowedHosts"),
        ("/implementation/endpoint", json!("https://u@mcp.example.org/mcp"), "userinfo"),
        ("/implementation/endpoint", json!("https://mcp.example.org/mcp#x"), "fragment"),
        ("/implementation/authentication", json!("connection"), "authorizationKind"),
        ("/implementation/limits", json!({ "timeoutMs": 99 }), "timeoutMs"),
        ("/implementation/limits", json!({ "timeoutMs": 120_001 }), "timeoutMs"),
        ("/implementation/limits", json!({ "responseBytes": 0 }), "responseBytes"),
        ("/implementation/limits", json!({ "responseBytes": 10_485_761 }), "responseBytes"),
        ("/requiredCapabilities", json!(["tools", "prompts"]), "requiredCapabilities"),
    ];
    for (pointer, value, part) in cases {
        refused(&with(remote(), pointer, value), part);
    }
}

#[test]
fn s198_an_interaction_above_64_kib_is_rejected() {
    let interaction = json!({ "note": "x".repeat(64 * 1024) });
    refused(&with(valid(), "/authorizationInteraction", interaction), "64 KiB");
}

#[test]
fn s201_s215_a_component_path_that_leaves_the_bundle_is_rejected() {
    for path in [
        "../x.wasm",
        "/x.wasm",
        "a//b.wasm",
        "./x.wasm",
        "a\\b.wasm",
        "C:x.wasm",
        "con",
        "a/NUL.wasm",
        "x.",
        "",
    ] {
        refused(&with(valid(), "/implementation/component", json!(path)), "relative path");
    }
}

#[test]
fn s202_an_allowed_host_is_an_exact_name() {
    for host in
        ["127.0.0.1", "[::1]", "example.org:443", "*.example.org", "example.org/x", "", "-x.org", "a..b"]
    {
        refused(&with(valid(), "/implementation/allowedHosts", json!([host])), "exact DNS name");
    }
    refused(&with(valid(), "/implementation/allowedHosts", json!(["a.org", "A.org"])), "twice");
}

#[test]
fn s204_to_s206_permissions() {
    let permissions = |permissions: Value| with(valid(), "/permissions", permissions);
    parse(&permissions(json!(["mail", "mail:inbox", "mail:*"]))).expect("scoped permissions");
    for odd in ["Mail", "mail:", "mail:*x", "mail:a:b", "mail:A", "mail:host:80", "mail:a/b", "", "1mail"] {
        refused(&permissions(json!([odd])), "permission");
    }
    refused(&permissions(json!(["mail", "mail"])), "twice");
}

#[test]
fn s214_a_limit_outside_its_range_names_itself() {
    let cases = [
        ("memoryBytes", 65_535_u64),
        ("memoryBytes", (4 << 30) + 1),
        ("tableElements", 0),
        ("cpuMs", 0),
        ("cpuMs", 120_001),
        ("wallMs", 99),
        ("wallMs", 120_001),
        ("concurrentCalls", 0),
        ("concurrentCalls", 1_001),
        ("responseBytes", 0),
        ("responseBytes", 10_485_761),
    ];
    for (name, value) in cases {
        refused(&with(valid(), "/implementation/limits", json!({ name: value })), name);
    }
}

#[test]
fn an_unknown_world_is_rejected() {
    refused(&with(valid(), "/implementation/world", json!("portcullis:connector/connector@9.0.0")), "world");
}

#[test]
fn credential_placement_is_tied_to_allowed_hosts_and_authorization() {
    let credential = |host: &str, name: &str| {
        let placement = json!({ "in": "header", "name": name, "prefix": "Bearer " });
        with(
            with(valid(), "/authorizationKind", json!("api_key")),
            "/implementation/credential",
            json!({ "hosts": [host], "placement": placement }),
        )
    };
    parse(&credential("example.org", "Authorization")).expect("an allowed host");
    refused(&credential("other.org", "Authorization"), "allowedHosts");
    refused(&credential("example.org", "Bad Header"), "placement");
    let without = with(credential("example.org", "Authorization"), "/authorizationKind", json!("none"));
    refused(&without, "authorizationKind");
}

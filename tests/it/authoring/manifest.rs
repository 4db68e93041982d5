//! An author's mistake names the field it is in.

use portcullis::{authoring::manifest, domain::error::ErrorCode};
use serde_json::{Value, json};

use super::{Workshop, says};

fn document() -> Value {
    json!({
        "schemaVersion": "1",
        "displayName": "Mail",
        "iconUrl": "https://example.org/mail.svg",
        "permissions": ["mail:read"],
        "agentRouting": { "aliases": ["post"] },
        "authorizationKind": "oauth2",
        "compatibility": { "minimumHostVersion": "1.2.3" },
        "implementation": {
            "kind": "wasm_component",
            "world": "portcullis:connector/connector@0.1.0",
            "component": "component.wasm",
            "allowedHosts": ["api.example.org"],
            "limits": { "memoryBytes": 16_777_216 },
            "credential": {
                "hosts": ["api.example.org"],
                "placement": { "in": "header", "name": "Authorization", "prefix": "Bearer " }
            }
        }
    })
}

#[test]
fn the_document_without_a_mistake_is_read() {
    manifest::read(document().to_string().as_bytes()).expect("valid");
}

#[test]
fn every_mistake_names_its_field() {
    let mistakes = [
        ("/schemaVersion", json!("2"), "schemaVersion"),
        ("/schemaVersion", json!(1), "schemaVersion"),
        ("/displayName", json!("  "), "displayName"),
        ("/displayName", json!(null), "displayName"),
        ("/iconUrl", json!("http://example.org/mail.svg"), "iconUrl"),
        ("/iconUrl", json!("data:image/gif;base64,AAAA"), "iconUrl"),
        ("/description", json!(7), "description"),
        ("/colour", json!("blue"), "colour"),
        ("/permissions", json!("mail"), "permissions"),
        ("/permissions", json!(["mail", "Mail Read"]), "permissions[1]"),
        ("/permissions", json!(["mail", "mail"]), "permissions"),
        ("/agentRouting/aliases", json!([]), "agentRouting.aliases"),
        ("/agentRouting/aliases", json!([1]), "agentRouting.aliases[0]"),
        ("/agentRouting/aliases", json!(["a", "A"]), "agentRouting.aliases"),
        ("/agentRouting/nicknames", json!([]), "nicknames"),
        ("/authorizationKind", json!("password"), "authorizationKind"),
        ("/authorizationKind", json!("none"), "implementation.credential"),
        ("/authorizationInteraction", json!("x".repeat(65 * 1024)), "authorizationInteraction"),
        ("/compatibility/minimumHostVersion", json!("one"), "compatibility.minimumHostVersion"),
        ("/compatibility/platforms", json!("linux"), "compatibility.platforms"),
        ("/examples", json!({ "Read Mail": [] }), "examples"),
        ("/implementation", json!("wasm"), "implementation"),
        ("/implementation/kind", json!("docker"), "implementation.kind"),
        ("/implementation/kind", json!(null), "implementation.kind"),
        ("/implementation/world", json!("portcullis:connector/connector@9.0.0"), "implementation.world"),
        ("/implementation/world", json!(null), "implementation.world"),
        ("/implementation/component", json!("../component.wasm"), "implementation.component"),
        ("/implementation/memory", json!(1), "memory"),
        ("/implementation/allowedHosts", json!(["*.example.org"]), "implementation.allowedHosts[0]"),
        ("/implementation/allowedHosts", json!(["a.org", "A.org"]), "implementation.allowedHosts"),
        ("/implementation/limits/memoryBytes", json!(1), "implementation.limits.memoryBytes"),
        ("/implementation/limits/memoryBytes", json!("16 MiB"), "implementation.limits.memoryBytes"),
        ("/implementation/limits/tableElements", json!(0), "implementation.limits.tableElements"),
        ("/implementation/limits/cpuMs", json!(0), "implementation.limits.cpuMs"),
        ("/implementation/limits/wallMs", json!(1), "implementation.limits.wallMs"),
        ("/implementation/limits/concurrentCalls", json!(0), "implementation.limits.concurrentCalls"),
        ("/implementation/limits/concurrentCalls", json!(-1), "implementation.limits.concurrentCalls"),
        ("/implementation/limits/responseBytes", json!(11 << 20), "implementation.limits.responseBytes"),
        ("/implementation/limits/seconds", json!(1), "seconds"),
        ("/implementation/credential/hosts", json!([]), "implementation.credential.hosts"),
        ("/implementation/credential/hosts", json!(["other.org"]), "implementation.credential"),
        ("/implementation/credential/hosts", json!(["10.0.0.1"]), "implementation.credential.hosts[0]"),
        ("/implementation/credential/placement/in", json!("body"), "implementation.credential.placement"),
        ("/implementation/credential/placement/name", json!("a b"), "implementation.credential.placement"),
    ];
    for (pointer, value, field) in mistakes {
        let mut wrong = document();
        let (parent, last) = pointer.rsplit_once('/').expect("a pointer");
        wrong.pointer_mut(parent).expect("the parent is there")[last] = value.clone();
        let error = manifest::read(wrong.to_string().as_bytes())
            .expect_err(&format!("{pointer} = {value} is a mistake"));
        says(&error, ErrorCode::InvalidManifest, &[field]);
    }
}

#[test]
fn every_missing_field_is_named() {
    for field in ["schemaVersion", "displayName", "iconUrl", "authorizationKind", "implementation"] {
        let mut wrong = document();
        wrong.as_object_mut().expect("an object").remove(field);
        let error = manifest::read(wrong.to_string().as_bytes()).expect_err(field);
        says(&error, ErrorCode::InvalidManifest, &[&format!("`{field}`")]);
    }
    for field in ["kind", "world"] {
        let mut wrong = document();
        wrong["implementation"].as_object_mut().expect("an object").remove(field);
        let error = manifest::read(wrong.to_string().as_bytes()).expect_err(field);
        says(&error, ErrorCode::InvalidManifest, &["implementation", &format!("`{field}`")]);
    }
}

#[test]
fn a_remote_connectors_mistakes_name_their_fields_too() {
    let remote = json!({
        "kind": "remote_streamable_http",
        "endpoint": "https://mcp.example.org/mcp",
        "authentication": "connection",
        "allowedHosts": ["mcp.example.org"]
    });
    let mut valid = document();
    valid["requiredCapabilities"] = json!(["tools"]);
    valid["implementation"] = remote;
    manifest::read(valid.to_string().as_bytes()).expect("valid");
    let mistakes = [
        ("endpoint", json!("not a URL"), "implementation.endpoint"),
        ("endpoint", json!("http://mcp.example.org/mcp"), "implementation.endpoint"),
        ("authentication", json!("basic"), "implementation.authentication"),
        ("authentication", json!("none"), "implementation.authentication"),
        ("limits", json!({ "timeoutMs": 99 }), "implementation.limits.timeoutMs"),
        ("limits", json!({ "timeoutMs": "1s" }), "implementation.limits.timeoutMs"),
        ("world", json!("x"), "world"),
    ];
    for (field, value, named) in mistakes {
        let mut wrong = valid.clone();
        wrong["implementation"][field] = value;
        let error = manifest::read(wrong.to_string().as_bytes()).expect_err(field);
        says(&error, ErrorCode::InvalidManifest, &[named]);
    }
}

#[test]
fn what_is_not_one_json_object_is_refused() {
    for text in ["", "[]", "null", "{", "{} {}", "\u{feff}{}"] {
        let error = manifest::read(text.as_bytes()).expect_err(text);
        says(&error, ErrorCode::InvalidManifest, &["manifest"]);
    }
    let twice = document().to_string().replacen('{', "{\"displayName\":\"Other\",", 1);
    says(
        &manifest::read(twice.as_bytes()).expect_err("a field that is there twice"),
        ErrorCode::InvalidManifest,
        &["displayName"],
    );
    let more = format!("{} true", document());
    says(
        &manifest::read(more.as_bytes()).expect_err("text after the end"),
        ErrorCode::InvalidManifest,
        &["text after the manifest"],
    );
}

#[test]
fn packing_says_which_file_the_mistake_is_in() {
    let workshop = Workshop::new();
    workshop.edit_manifest("/implementation/limits/cpuMs", json!("fast"));
    says(&workshop.refusal(), ErrorCode::InvalidManifest, &["connector.json", "implementation.limits.cpuMs"]);
}

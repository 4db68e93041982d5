//! Reading an author's manifest so that a mistake names its field.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::domain::{
    error::Error,
    manifest::{Implementation, Manifest, RemoteStreamableHttp, WasmComponent},
};

/// Parses a manifest and checks every rule.
///
/// # Errors
/// [`crate::domain::error::ErrorCode::InvalidManifest`] with the path of the
/// field, such as `implementation.limits.memoryBytes`.
pub fn read(json: &[u8]) -> Result<Manifest, Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let manifest: Manifest = serde_path_to_error::deserialize(&mut deserializer).map_err(|failed| {
        let path = failed.path().to_string();
        match path.as_str() {
            _ if failed.inner().is_syntax() || failed.inner().is_eof() => {
                mistake(".", &failed.inner().to_string())
            }
            "implementation" => {
                implementation_mistake(json).unwrap_or_else(|| mistake(&path, &failed.inner().to_string()))
            }
            _ => mistake(&path, &failed.inner().to_string()),
        }
    })?;
    deserializer
        .end()
        .map_err(|cause| Error::invalid_manifest(format!("text after the manifest: {cause}")))?;
    manifest.validate()?;
    Ok(manifest)
}

/// The document with another icon; nothing else of it is looked at.
///
/// # Errors
/// [`crate::domain::error::ErrorCode::InvalidManifest`] when it is no JSON object.
pub fn with_icon(json: &[u8], icon_url: &str) -> Result<Vec<u8>, Error> {
    let mut document: serde_json::Map<String, Value> =
        serde_json::from_slice(json).map_err(|cause| mistake(".", &cause.to_string()))?;
    document.insert("iconUrl".to_owned(), icon_url.into());
    serde_json::to_vec(&document).map_err(|cause| mistake(".", &cause.to_string()))
}

fn mistake(path: &str, reason: &str) -> Error {
    Error::invalid_manifest(if path == "." {
        format!("the manifest is not readable: {reason}")
    } else {
        format!("{path}: {reason}")
    })
}

/// A tagged choice is read as a whole, which loses the path inside it; reading
/// the chosen kind once more on its own finds the field.
fn implementation_mistake(json: &[u8]) -> Option<Error> {
    fn inside<T: DeserializeOwned>(value: Value) -> Option<Error> {
        let failed = serde_path_to_error::deserialize::<_, T>(value).err()?;
        let path = match failed.path().to_string().as_str() {
            "." => "implementation".to_owned(),
            inner => format!("implementation.{inner}"),
        };
        Some(mistake(&path, &failed.inner().to_string()))
    }
    let mut document: Value = serde_json::from_slice(json).ok()?;
    let mut implementation = document.get_mut("implementation")?.take();
    let kind = implementation.as_object_mut()?.remove("kind");
    match kind.as_ref().and_then(Value::as_str) {
        Some("wasm_component") => inside::<WasmComponent>(implementation),
        Some("remote_streamable_http") => inside::<RemoteStreamableHttp>(implementation),
        _ => {
            let kind = kind?;
            let reason =
                serde_json::from_value::<Implementation>(serde_json::json!({ "kind": kind })).err()?;
            Some(mistake("implementation.kind", &reason.to_string()))
        }
    }
}

//! `portcullis call`.

use std::io::Read as _;

use serde_json::{Map, Value};

use super::{args::CallOptions, capabilities, client, client::Client, exit::Failure, output::Output};
use crate::{
    api::dto,
    domain::{capability::Content, error::ErrorCode},
};

pub(super) async fn run(client: &Client, output: Output, options: CallOptions) -> Result<(), Failure> {
    let input = match (&options.json_input, options.input.is_empty()) {
        (Some(text), _) if text == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|cause| {
                Failure::usage(format!("standard input is not readable as text: {cause}"))
            })?;
            json(&text)?
        }
        (Some(text), _) => json(text)?,
        (None, false) => match fields(client, &options).await {
            Err(failure) => return Err(explain(client, &options.id, failure).await),
            Ok(input) => input,
        },
        (None, true) => Value::Object(Map::new()),
    };
    let body = dto::CallBody { input, deadline_ms: options.deadline_ms };
    let answer = match client.call(&options.id, &body).await {
        Err(failure) => return Err(explain(client, &options.id, failure).await),
        Ok(answer) => answer,
    };
    output.document(&answer);
    if !output.is_json() {
        print(output, &client::parse(answer)?);
    }
    Ok(())
}

/// What a person can do about it.
async fn explain(client: &Client, id: &str, failure: Failure) -> Failure {
    if failure.is(ErrorCode::CapabilityInputInvalid) {
        let look = client.command(&format!("capabilities {id}"));
        return failure.with_hint(format!("see its input with: {look}"));
    }
    if !failure.is(ErrorCode::CapabilityNotFound) {
        return failure;
    }
    let failure =
        failure.with_hint(format!("see what can be called with: {}", client.command("capabilities")));
    match id.rsplit_once('.') {
        Some((key, _)) => capabilities::explained(client, key, failure).await,
        None => failure,
    }
}

fn json(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|cause| Failure::usage(format!("the input is not JSON: {cause}")))
}

/// The input from `name=value` pairs: text where the schema says string or says
/// nothing that the value could be read as, JSON otherwise.
async fn fields(client: &Client, options: &CallOptions) -> Result<Value, Failure> {
    let capability = client.get(&["v1", "capabilities", &options.id]).await?;
    let mut input = Map::new();
    for pair in &options.input {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--input {pair:?} is not NAME=VALUE")))?;
        let value = field(&capability["inputSchema"]["properties"][name]["type"], value);
        if input.insert(name.to_owned(), value).is_some() {
            return Err(Failure::usage(format!("--input names {name:?} twice")));
        }
    }
    Ok(Value::Object(input))
}

fn field(kind: &Value, value: &str) -> Value {
    let is_text =
        kind == "string" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|one| one == "string"));
    if is_text {
        return Value::String(value.to_owned());
    }
    serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()))
}

/// Text as it is; everything else as JSON, and the structured answer where there
/// is no text.
fn print(output: Output, answer: &dto::CallAnswer<'_>) {
    let mut printed = false;
    for content in answer.content.iter() {
        match content {
            Content::Text { text } => {
                output.content(text);
                printed = true;
            }
            Content::Image { mime_type, data } | Content::Audio { mime_type, data } => {
                output.note(format!("({mime_type}, {} characters of base64; --json shows them)", data.len()));
            }
            Content::ResourceLink { uri, name, .. } => output.content(&format!("{name}: {uri}")),
            Content::Resource { resource } => match &resource.text {
                Some(text) => output.content(text),
                None => output.note(format!("({}; --json shows it)", resource.uri)),
            },
        }
    }
    if let (false, Some(structured)) = (printed, &answer.structured_content) {
        output.content(&serde_json::to_string_pretty(structured).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_is_read_as_its_schema_asks() {
        assert_eq!(field(&json!("string"), "12345"), json!("12345"));
        assert_eq!(field(&json!(["string", "null"]), "null"), json!("null"));
        assert_eq!(field(&json!("integer"), "5"), json!(5));
        assert_eq!(field(&json!("array"), "[1,2]"), json!([1, 2]));
        assert_eq!(field(&json!("integer"), "many"), json!("many"));
        assert_eq!(field(&Value::Null, "plain words"), json!("plain words"));
    }
}

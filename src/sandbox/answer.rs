//! What a guest answered, as the domain has it: sizes counted, JSON checked, errors
//! with their codes.

use std::io;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use wasmtime::{PoolConcurrencyLimitError, Trap};
use wasmtime_wasi::I32Exit;

use super::{bindings::imported::types as wit, guest_text, limits::Limiter, schemas::Schema};
use crate::domain::{
    capability::{CallResult, Content, EmbeddedResource},
    error::{Error, ErrorCode},
};

/// Structured content that is read in far less than a millisecond.
const QUICK_BYTES: usize = 32 << 10;

/// Whether checking a result is so quick that nobody is held up by it.
pub(crate) fn is_quick(answer: &wit::CallResult, schema: Option<&Schema>) -> bool {
    let bytes = answer.structured.as_ref().map_or(0, String::len);
    bytes <= QUICK_BYTES && schema.is_none_or(|schema| schema.is_quick_for(bytes))
}

/// By how much an answer in JSON may be larger than its limit: what surrounds a text of
/// just the limit.
const FRAMING: u64 = 1 << 10;

/// Checks and translates a result. What the guest sent is held to the limit, and so is
/// what goes out: framing, escapes and base64 make it larger.
///
/// # Errors
/// [`ErrorCode::CapabilityOutputTooLarge`] or [`ErrorCode::CapabilityOutputInvalid`].
pub(crate) fn result(
    answer: wit::CallResult,
    schema: Option<&Schema>,
    limit: u64,
) -> Result<CallResult, Error> {
    let size: usize =
        answer.content.iter().map(weight).sum::<usize>() + answer.structured.as_ref().map_or(0, String::len);
    if size as u64 > limit {
        return Err(Error::new(
            ErrorCode::CapabilityOutputTooLarge,
            format!("the connector answered {size} bytes; at most {limit} are allowed"),
        ));
    }
    let too_large = |_| {
        Error::new(
            ErrorCode::CapabilityOutputTooLarge,
            format!("the connector's answer in JSON is larger than the {limit} bytes that are allowed"),
        )
    };
    let mut room = Room(limit.saturating_add(FRAMING));
    // One by one: what does not fit any more is not even encoded.
    let mut content = Vec::new();
    for piece in answer.content {
        let piece = translate(piece);
        room.take(&piece).map_err(too_large)?;
        content.push(piece);
    }
    let structured_content = structured(answer.structured.as_deref(), schema)?;
    if let Some(value) = &structured_content {
        room.take(value).map_err(too_large)?;
    }
    Ok(CallResult { content, structured_content })
}

/// Bytes of JSON that still fit.
struct Room(u64);

impl Room {
    /// Takes the room of one value and of the comma after it.
    fn take(&mut self, value: &impl serde::Serialize) -> Result<(), serde_json::Error> {
        serde_json::to_writer(&mut *self, value)?;
        io::Write::write_all(self, b",").map_err(serde_json::Error::io)
    }
}

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn structured(text: Option<&str>, schema: Option<&Schema>) -> Result<Option<Value>, Error> {
    let invalid = |message: String| Error::new(ErrorCode::CapabilityOutputInvalid, message);
    let Some(text) = text else {
        return match schema {
            Some(_) => Err(invalid(
                "the connector answered no structured content, which its output schema promises".into(),
            )),
            None => Ok(None),
        };
    };
    let value: Value = serde_json::from_str(text).map_err(|cause| {
        invalid(format!("the connector answered structured content that is no JSON: {cause}"))
    })?;
    if !value.is_object() {
        return Err(invalid("the connector answered structured content that is no JSON object".into()));
    }
    if let Some(schema) = schema {
        schema.check(&value).map_err(|mismatch| {
            invalid(format!(
                "the connector's answer does not match its output schema at {:?} ({}): {}",
                mismatch.pointer, mismatch.rule, mismatch.detail
            ))
        })?;
    }
    Ok(Some(value))
}

fn weight(content: &wit::Content) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    match content {
        wit::Content::Text(text) => text.len(),
        wit::Content::Image(blob) | wit::Content::Audio(blob) => blob.data.len() + blob.media_type.len(),
        wit::Content::ResourceLink(link) => {
            link.uri.len()
                + link.name.len()
                + optional(&link.title)
                + optional(&link.description)
                + optional(&link.media_type)
        }
        wit::Content::EmbeddedResource(resource) => {
            let body = match &resource.body {
                wit::ResourceBody::Text(text) => text.len(),
                wit::ResourceBody::Bytes(bytes) => bytes.len(),
            };
            resource.uri.len() + optional(&resource.media_type) + body
        }
    }
}

fn translate(content: wit::Content) -> Content {
    match content {
        wit::Content::Text(text) => Content::Text { text },
        wit::Content::Image(blob) => {
            Content::Image { data: STANDARD.encode(blob.data), mime_type: blob.media_type }
        }
        wit::Content::Audio(blob) => {
            Content::Audio { data: STANDARD.encode(blob.data), mime_type: blob.media_type }
        }
        wit::Content::ResourceLink(link) => Content::ResourceLink {
            uri: link.uri,
            name: link.name,
            title: link.title,
            description: link.description,
            mime_type: link.media_type,
        },
        wit::Content::EmbeddedResource(resource) => {
            let (text, blob) = match resource.body {
                wit::ResourceBody::Text(text) => (Some(text), None),
                wit::ResourceBody::Bytes(bytes) => (None, Some(STANDARD.encode(bytes))),
            };
            Content::Resource {
                resource: EmbeddedResource { uri: resource.uri, mime_type: resource.media_type, text, blob },
            }
        }
    }
}

/// The error that a guest answered.
pub(crate) fn guest_error(error: wit::Error) -> Error {
    let (code, text) = match error {
        wit::Error::InvalidInput(text) => (ErrorCode::ConnectorInvalidInput, text),
        wit::Error::Unauthorized(text) => (ErrorCode::ConnectorUnauthorized, text),
        wit::Error::Forbidden(text) => (ErrorCode::ConnectorForbidden, text),
        wit::Error::NotFound(text) => (ErrorCode::ConnectorTargetNotFound, text),
        wit::Error::Conflict(text) => (ErrorCode::ConnectorConflict, text),
        wit::Error::RateLimited(limit) => {
            let message = guest_text::message(&limit.message);
            let message = match limit.retry_after {
                Some(delay) => format!("{message} (try again in {delay} ms)"),
                None => message,
            };
            return Error::new(ErrorCode::ConnectorRateLimited, message);
        }
        wit::Error::Upstream(text) => (ErrorCode::ConnectorUpstream, text),
        wit::Error::Internal(text) => (ErrorCode::ConnectorInternal, text),
    };
    Error::new(code, guest_text::message(&text))
}

/// Why a guest did not answer at all.
pub(crate) fn failure(error: &wasmtime::Error, limiter: &Limiter) -> Error {
    let trap = error.downcast_ref::<Trap>();
    if trap == Some(&Trap::StackOverflow) {
        return Error::new(ErrorCode::CapabilityStackExhausted, "the connector's call stack overflowed");
    }
    if limiter.memory_refused() {
        return Error::new(
            ErrorCode::CapabilityMemoryExhausted,
            "the connector asked for more memory than a call may have, and gave up",
        );
    }
    if limiter.budget_refused() {
        return Error::new(
            ErrorCode::CapabilityMemoryExhausted,
            "the memory that this host has for connectors is taken by other calls; try again later",
        )
        .with_retryable(true);
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return Error::new(ErrorCode::CapabilityBusy, "too many connectors run at the moment; try again");
    }
    let message = match (trap, error.downcast_ref::<I32Exit>()) {
        (Some(trap), _) => format!("the connector trapped ({trap})"),
        (None, Some(exit)) => format!("the connector ended itself with status {}", exit.0),
        (None, None) => "the connector broke the rules of the component model".to_owned(),
    };
    Error::new(ErrorCode::CapabilityTrapped, message)
        .with_cause(guest_text::plain(&format!("{error:#}"), 2_000))
}

//! The last segment of a path: a thing, or a thing and what to do with it.

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};

use super::ApiError;
use crate::domain::error::{Error, ErrorCode};

/// `{name}` or `{name}:{verb}`, split at the last colon. No name that we route by
/// holds a colon itself.
#[derive(Debug)]
pub(super) struct Target {
    name: String,
    verb: Option<String>,
}

impl Target {
    /// The name, on a method that takes no verb. `verbs` are those of POST.
    pub(super) fn thing(self, verbs: &[&str]) -> Result<String, ApiError> {
        match self.verb.as_deref() {
            None => Ok(self.name),
            Some(verb) if verbs.contains(&verb) => Err(ApiError::wrong_method("POST")),
            Some(verb) => Err(unknown(verb)),
        }
    }

    /// The name and which of `verbs` to do with it.
    pub(super) fn command<V: Copy>(self, verbs: &[(&str, V)]) -> Result<(String, V), ApiError> {
        let Some(verb) = self.verb else { return Err(ApiError::wrong_method("GET, HEAD")) };
        match verbs.iter().find(|(known, _)| *known == verb) {
            Some(&(_, verb)) => Ok((self.name, verb)),
            None => Err(unknown(&verb)),
        }
    }
}

fn unknown(verb: &str) -> ApiError {
    let verb: String = verb.chars().take(64).collect();
    Error::new(ErrorCode::RouteNotFound, format!("there is no command {verb:?} here")).into()
}

impl<S: Send + Sync> FromRequestParts<S> for Target {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(segment) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| Error::invalid_request("the path is not percent-encoded UTF-8"))?;
        Ok(match segment.rsplit_once(':') {
            Some((name, verb)) => Self { name: name.to_owned(), verb: Some(verb.to_owned()) },
            None => Self { name: segment, verb: None },
        })
    }
}

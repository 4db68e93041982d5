//! `client`: questions to the caller. No caller can answer yet, so that each is
//! refused with a type of its own.

use wasmtime::component::HasData;

use crate::sandbox::bindings::imported::{client, types};

/// Marks the interface for the linker.
pub(crate) struct Client;

impl HasData for Client {
    type Data<'a> = ClientView;
}

/// What one host call sees.
pub(crate) struct ClientView;

impl client::Host for ClientView {
    async fn elicit(
        &mut self,
        _message: String,
        _schema: String,
    ) -> Result<client::Elicitation, client::Error> {
        Err(client::Error::Unsupported)
    }

    async fn sample(
        &mut self,
        _request: client::SamplingRequest,
    ) -> Result<client::SamplingResult, client::Error> {
        Err(client::Error::Unsupported)
    }
}

/// `types` has no functions; the linker wants a host for it nevertheless.
impl types::Host for ClientView {}

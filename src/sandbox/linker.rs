//! Everything that a component can be linked to.

use wasmtime::component::Linker;

use super::{
    bindings::imported,
    imports::{Client, Log, Reporting, State, bound_requests},
    instance::InstanceState,
};
use crate::domain::error::Error;

/// The linker of every connector.
///
/// # Errors
/// [`crate::domain::error::ErrorCode::Unavailable`]: the sandbox contradicts itself.
pub(crate) fn linker(engine: &wasmtime::Engine) -> Result<Linker<InstanceState>, Error> {
    let mut linker = Linker::new(engine);
    add_everything(&mut linker).map_err(|cause| {
        Error::unavailable("the sandbox cannot offer its imports").with_cause(cause.to_string())
    })?;
    Ok(linker)
}

fn add_everything(linker: &mut Linker<InstanceState>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    bound_requests(linker)?;
    imported::types::add_to_linker::<_, Client>(linker, InstanceState::client)?;
    imported::log::add_to_linker::<_, Log>(linker, InstanceState::log)?;
    imported::progress::add_to_linker::<_, Reporting>(linker, InstanceState::progress)?;
    imported::state::add_to_linker::<_, State>(linker, InstanceState::state)?;
    imported::client::add_to_linker::<_, Client>(linker, InstanceState::client)
}

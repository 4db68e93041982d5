//! Lengths of the parts of a request, which wasi-http keeps as long as a guest makes
//! them. They are the host's memory and count for no limit of the guest.

use wasmtime::{
    StoreContextMut,
    component::{ComponentNamedList, ComponentType, Lift, Linker, LinkerInstance, Resource},
};
use wasmtime_wasi_http::{
    WasiHttpCtxView, WasiHttpView as _,
    p2::bindings::http::types::{HostOutgoingRequest, Method, OutgoingRequest, Scheme},
};

use crate::sandbox::instance::InstanceState;

/// The interface, in the version that the host's WASI has.
const INTERFACE: &str = "wasi:http/types@0.2.12";
const METHOD_BYTES: usize = 64;
const SCHEME_BYTES: usize = 64;
const AUTHORITY_BYTES: usize = 512;
const PATH_BYTES: usize = 8 << 10;

/// Puts a check of the length before each setter of a request.
pub(crate) fn bound_requests(linker: &mut Linker<InstanceState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance(INTERFACE)?;
    setter(
        &mut types,
        "set-method",
        |method| !matches!(method, Method::Other(text) if text.len() > METHOD_BYTES),
        |view, request, method| view.set_method(request, method),
    )?;
    setter(
        &mut types,
        "set-scheme",
        |scheme| !matches!(scheme, Some(Scheme::Other(text)) if text.len() > SCHEME_BYTES),
        |view, request, scheme| view.set_scheme(request, scheme),
    )?;
    setter(
        &mut types,
        "set-authority",
        |text: &Option<String>| text.as_ref().is_none_or(|text| text.len() <= AUTHORITY_BYTES),
        |view, request, text| view.set_authority(request, text),
    )?;
    setter(
        &mut types,
        "set-path-with-query",
        |text: &Option<String>| text.as_ref().is_none_or(|text| text.len() <= PATH_BYTES),
        |view, request, text| view.set_path_with_query(request, text),
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

type Outcome = Result<(), ()>;

fn setter<T>(
    types: &mut LinkerInstance<'_, InstanceState>,
    name: &str,
    fits: fn(&T) -> bool,
    set: fn(&mut WasiHttpCtxView<'_>, Resource<OutgoingRequest>, T) -> wasmtime::Result<Outcome>,
) -> wasmtime::Result<()>
where
    T: ComponentType + Lift + Send + Sync + 'static,
    (Resource<OutgoingRequest>, T): ComponentNamedList + Lift,
{
    types.func_wrap(
        &format!("[method]outgoing-request.{name}"),
        move |mut store: StoreContextMut<'_, InstanceState>, (request, value): (Resource<_>, T)| {
            let outcome =
                if fits(&value) { set(&mut store.data_mut().http(), request, value)? } else { Err(()) };
            Ok((outcome,))
        },
    )
}

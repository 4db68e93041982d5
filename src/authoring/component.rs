//! What a component imports and exports, read from its bytes without running it.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;
use wit_component::DecodedWasm;
use wit_parser::{Function, Handle, Resolve, Type, TypeDefKind, World, WorldItem, WorldKey};

use crate::domain::error::{Error, ErrorCode};

/// A signature longer than this is cut; no honest one comes near.
const SIGNATURE_LIMIT: usize = 64 * 1024;

/// The functions of one interface by name, each with its signature spelled out
/// down to the built-in types: equal text means equal type.
pub type Functions = BTreeMap<String, String>;

/// A component's outside. Keys are interface ids such as `wasi:io/poll@0.2.6`; a
/// function that stands alone is its own interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ComponentInterface {
    /// What it needs.
    pub imports: BTreeMap<String, Functions>,
    /// What it offers.
    pub exports: BTreeMap<String, Functions>,
}

impl ComponentInterface {
    /// Reads a component.
    ///
    /// # Errors
    /// [`ErrorCode::ComponentInvalid`] when the bytes are no valid component.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let invalid = |message: &str| Err(Error::new(ErrorCode::ComponentInvalid, message));
        match bytes.get(..8) {
            Some([b'\0', b'a', b's', b'm', _, _, 1, 0]) => {}
            Some([b'\0', b'a', b's', b'm', _, _, 0, 0]) => {
                return invalid(
                    "this is a core WebAssembly module, not a component; \
                     `portcullis connector build` makes a component of a guest crate",
                );
            }
            _ => return invalid("this is not WebAssembly"),
        }
        // The decoder is made for components that tools wrote, and panics at some
        // that are valid but that no tool would write.
        let decoded = std::panic::catch_unwind(|| {
            wit_component::decode(bytes).map_err(|cause| format!("this is not a valid component: {cause:#}"))
        })
        .unwrap_or_else(|_| Err("no WIT can describe what this component imports or exports".to_owned()));
        match decoded {
            Ok(DecodedWasm::Component(resolve, world)) => {
                Ok(Self::of_world(&resolve, &resolve.worlds[world]))
            }
            Ok(DecodedWasm::WitPackage(..)) => {
                invalid("this is a WIT package in binary form, not a component")
            }
            Err(message) => invalid(&message),
        }
    }

    pub(super) fn of_world(resolve: &Resolve, world: &World) -> Self {
        let side = |items: &mut dyn Iterator<Item = (&WorldKey, &WorldItem)>| {
            items
                .map(|(key, item)| {
                    let functions = match item {
                        WorldItem::Interface { id, .. } => resolve.interfaces[*id]
                            .functions
                            .values()
                            .map(|function| (function.name.clone(), signature(resolve, function)))
                            .collect(),
                        WorldItem::Function(function) => {
                            Functions::from([(function.name.clone(), signature(resolve, function))])
                        }
                        WorldItem::Type { .. } => Functions::new(),
                    };
                    (resolve.name_world_key(key), functions)
                })
                .collect()
        };
        Self { imports: side(&mut world.imports.iter()), exports: side(&mut world.exports.iter()) }
    }
}

fn signature(resolve: &Resolve, function: &Function) -> String {
    let mut text = String::from(if function.kind.is_async() { "async func(" } else { "func(" });
    for (index, param) in function.params.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{}: ", param.name);
        spell(resolve, &param.ty, &mut text);
    }
    text.push(')');
    if let Some(result) = &function.result {
        text.push_str(" -> ");
        spell(resolve, result, &mut text);
    }
    text
}

/// Appends a type with every name but a resource's replaced by what it stands for.
fn spell(resolve: &Resolve, ty: &Type, text: &mut String) {
    if text.len() > SIGNATURE_LIMIT {
        if !text.ends_with('…') {
            text.push('…');
        }
        return;
    }
    let Type::Id(id) = ty else {
        text.push_str(match ty {
            Type::Bool => "bool",
            Type::U8 => "u8",
            Type::U16 => "u16",
            Type::U32 => "u32",
            Type::U64 => "u64",
            Type::S8 => "s8",
            Type::S16 => "s16",
            Type::S32 => "s32",
            Type::S64 => "s64",
            Type::F32 => "f32",
            Type::F64 => "f64",
            Type::Char => "char",
            Type::String => "string",
            Type::ErrorContext => "error-context",
            Type::Id(_) => "",
        });
        return;
    };
    let definition = &resolve.types[*id];
    let name = definition.name.as_deref().unwrap_or("?");
    let mut group = |word: &str, members: &mut dyn Iterator<Item = (Option<&str>, Option<&Type>)>| {
        text.push_str(word);
        for (index, (member, ty)) in members.enumerate() {
            text.push_str(if index == 0 { "<" } else { ", " });
            match (member, ty) {
                (Some(member), Some(ty)) => {
                    let _ = write!(text, "{member}: ");
                    spell(resolve, ty, text);
                }
                (Some(member), None) => text.push_str(member),
                (None, Some(ty)) => spell(resolve, ty, text),
                (None, None) => text.push('_'),
            }
        }
        text.push('>');
    };
    match &definition.kind {
        TypeDefKind::Type(alias) => spell(resolve, alias, text),
        TypeDefKind::Record(record) => group(
            "record",
            &mut record.fields.iter().map(|field| (Some(field.name.as_str()), Some(&field.ty))),
        ),
        TypeDefKind::Variant(variant) => group(
            "variant",
            &mut variant.cases.iter().map(|case| (Some(case.name.as_str()), case.ty.as_ref())),
        ),
        TypeDefKind::Enum(cases) => {
            group("enum", &mut cases.cases.iter().map(|case| (Some(case.name.as_str()), None)));
        }
        TypeDefKind::Flags(flags) => {
            group("flags", &mut flags.flags.iter().map(|flag| (Some(flag.name.as_str()), None)));
        }
        TypeDefKind::Tuple(tuple) => group("tuple", &mut tuple.types.iter().map(|ty| (None, Some(ty)))),
        TypeDefKind::Option(some) => group("option", &mut std::iter::once((None, Some(some)))),
        TypeDefKind::Result(result) => {
            group("result", &mut [(None, result.ok.as_ref()), (None, result.err.as_ref())].into_iter());
        }
        TypeDefKind::List(item) => group("list", &mut std::iter::once((None, Some(item)))),
        TypeDefKind::Map(key, value) => {
            group("map", &mut [(None, Some(key)), (None, Some(value))].into_iter());
        }
        TypeDefKind::FixedLengthList(item, length) => {
            group("list", &mut std::iter::once((None, Some(item))));
            let _ = write!(text, "[{length}]");
        }
        TypeDefKind::Future(item) => group("future", &mut std::iter::once((None, item.as_ref()))),
        TypeDefKind::Stream(item) => group("stream", &mut std::iter::once((None, item.as_ref()))),
        TypeDefKind::Handle(Handle::Own(resource)) => {
            group("own", &mut std::iter::once((None, Some(&Type::Id(*resource)))));
        }
        TypeDefKind::Handle(Handle::Borrow(resource)) => {
            group("borrow", &mut std::iter::once((None, Some(&Type::Id(*resource)))));
        }
        TypeDefKind::Resource | TypeDefKind::Unknown => text.push_str(name),
    }
}

//! Writes the public API as one text, from the source: every item that is `pub`, without its docs and bodies. The lint
//! `unreachable_pub` sees to it that such an item is public.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::Span;
use syn::{
    Attribute, Field, FieldMutability, Fields, FnArg, Ident, ImplItem, Item, ItemImpl, Pat, PatType, Signature, Type,
    Visibility, parse_quote,
};

/// The API of the files below a folder. What is generated from the contract is in the contract.
pub(crate) fn read(src: &Path) -> Result<String, Box<dyn Error>> {
    let mut read = Vec::new();
    for path in files(src)? {
        let name = path.strip_prefix(src)?.to_string_lossy().into_owned();
        if !name.starts_with("gen") && !name.ends_with("_test.rs") {
            read.push((name, syn::parse_file(&fs::read_to_string(&path)?)?));
        }
    }
    let types: HashSet<String> = read.iter().flat_map(|(_, file)| &file.items).filter_map(public_type).collect();
    let mut parts = Vec::new();
    for (name, mut file) in read {
        file.attrs.clear();
        file.items = file.items.into_iter().filter_map(|item| public(item, &types)).collect();
        if !file.items.is_empty() {
            parts.push(format!("// src/{name}\n{}", prettyplease::unparse(&file)));
        }
    }
    Ok(parts.join("\n"))
}

fn public_type(item: &Item) -> Option<String> {
    match item {
        Item::Struct(item) if is_pub(&item.vis) => Some(item.ident.to_string()),
        Item::Enum(item) if is_pub(&item.vis) => Some(item.ident.to_string()),
        _ => None,
    }
}

/// The files of Rust below a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
    let mut paths: Vec<_> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
            false => {}
        }
    }
    Ok(found)
}

/// What of an item is public.
fn public(mut item: Item, types: &HashSet<String>) -> Option<Item> {
    let is_public = match &mut item {
        Item::Struct(item) => {
            keep(&mut item.attrs);
            hide(&mut item.fields);
            is_pub(&item.vis)
        }
        Item::Enum(item) => {
            keep(&mut item.attrs);
            for variant in &mut item.variants {
                keep(&mut variant.attrs);
                variant.fields.iter_mut().for_each(|field| keep(&mut field.attrs));
            }
            is_pub(&item.vis)
        }
        Item::Fn(item) => {
            keep(&mut item.attrs);
            *item.block = parse_quote!({});
            is_pub(&item.vis)
        }
        Item::Type(item) => {
            keep(&mut item.attrs);
            is_pub(&item.vis)
        }
        Item::Use(item) => is_pub(&item.vis),
        Item::Mod(item) => {
            keep(&mut item.attrs);
            if let Some((_, items)) = &mut item.content {
                *items = std::mem::take(items).into_iter().filter_map(|item| public(item, types)).collect();
            }
            is_pub(&item.vis)
        }
        Item::Impl(item) => is_one_of(types, &item.self_ty) && implementation(item),
        Item::Trait(item) => is_pub(&item.vis),
        _ => false,
    };
    is_public.then_some(item)
}

/// Leaves the public functions of a type, and the names of the traits that it has.
fn implementation(item: &mut ItemImpl) -> bool {
    keep(&mut item.attrs);
    if item.trait_.is_some() {
        item.items.clear();
        return true;
    }
    item.items.retain_mut(|item| match item {
        ImplItem::Fn(function) if is_pub(&function.vis) => {
            keep(&mut function.attrs);
            plain(&mut function.sig);
            function.block = parse_quote!({});
            true
        }
        _ => false,
    });
    !item.items.is_empty()
}

fn is_one_of(types: &HashSet<String>, this: &Type) -> bool {
    let Type::Path(path) = this else { return false };
    path.path.segments.last().is_some_and(|segment| types.contains(&segment.ident.to_string()))
}

/// A parameter that is `mut` is the function's own matter.
fn plain(signature: &mut Signature) {
    for input in &mut signature.inputs {
        match input {
            FnArg::Receiver(this) if this.reference.is_none() => this.mutability = None,
            FnArg::Typed(PatType { pat, .. }) => {
                if let Pat::Ident(name) = &mut **pat {
                    name.mutability = None;
                }
            }
            FnArg::Receiver(_) => {}
        }
    }
}

fn is_pub(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Leaves the attributes that a user of an item sees.
fn keep(attributes: &mut Vec<Attribute>) {
    attributes
        .retain(|attribute| ["cfg", "derive", "non_exhaustive"].iter().any(|name| attribute.path().is_ident(name)));
}

/// Leaves the public fields of a struct, and says whether there are others.
fn hide(fields: &mut Fields) {
    let all = fields.len();
    match fields {
        Fields::Named(named) => {
            named.named = std::mem::take(&mut named.named).into_iter().filter(|field| is_pub(&field.vis)).collect();
            named.named.iter_mut().for_each(|field| keep(&mut field.attrs));
            if named.named.len() < all {
                let private = Ident::new("private", Span::call_site());
                named.named.push(Field {
                    attrs: Vec::new(),
                    vis: Visibility::Inherited,
                    mutability: FieldMutability::None,
                    ident: Some(private),
                    colon_token: None,
                    ty: parse_quote!(_),
                });
            }
        }
        Fields::Unnamed(unnamed) => {
            unnamed.unnamed.iter_mut().filter(|field| !is_pub(&field.vis)).for_each(|field| field.ty = parse_quote!(_));
        }
        Fields::Unit => {}
    }
}

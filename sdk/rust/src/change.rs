//! Changes of JSON documents, as docs/protocol.md of Portcullis says in "Changes".

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, Value};
use serde_json::{Error, from_str, to_string, to_vec};

use crate::error::{HandlerError, PublicError};

/// How many levels of a document are compared. Values below them are written as a whole, so that comparing at each level takes time
/// in the size of the document.
const DEPTH: usize = 64;

/// How many bytes a patch may have whatever the size of the object.
const SMALL_PATCH: usize = 64 << 10;

/// The members by which Kubernetes tells items of its lists apart.
const KEYS: [&str; 10] =
    ["name", "mountPath", "devicePath", "containerPort", "port", "key", "ip", "topologyKey", "uid", "type"];

/// The JSON Patch that makes the change from `before` to `after` in `raw`. They are the object as a type writes it, which may drop
/// members of `raw`, and add some: what they agree on stays as `raw` has it.
pub(crate) fn change(raw: &str, before: &str, after: &str) -> Result<Vec<u8>, HandlerError> {
    let document = Document::read(raw)?;
    let object = merge(&document, Some(&Document::read(before)?), &Document::read(after)?, DEPTH);
    let patch = difference(&document, &object)?;
    check_numbers(raw, std::str::from_utf8(&patch)?)?;
    Ok(patch)
}

/// Fails if the patch has an integer of `raw` as `serde_json` has rounded it. Other large ones are the author's.
fn check_numbers(raw: &str, patch: &str) -> Result<(), PublicError> {
    let numbers = |text| str::split(text, |c: char| !c.is_ascii_digit() && !"+-.eE".contains(c));
    let beyond = |text: &str| text.len() > 18 && text.parse::<u64>().is_err() && text.parse::<i64>().is_err();
    let bits = |text: &str| text.parse().ok().map(f64::to_bits);
    let exact: HashSet<&str> = numbers(raw).filter(|text| beyond(text)).collect();
    if exact.is_empty() {
        return Ok(());
    }
    let rounded: HashSet<u64> = exact.iter().copied().filter_map(bits).collect();
    let wrong = |text: &str| !exact.contains(text) && bits(text).is_some_and(|bits| rounded.contains(&bits));
    match numbers(patch).find(|text| wrong(text)) {
        Some(text) => {
            Err(PublicError::new(format!("the patch would hold {text}, which is an integer that was rounded")))
        }
        None => Ok(()),
    }
}

/// A JSON value. One that was read is split on first use, so that what a change leaves alone is compared and written as text.
#[derive(Clone, Debug)]
struct Document<'a>(Rc<Inner<'a>>);

#[derive(Debug)]
struct Inner<'a> {
    /// As it was read.
    text: Option<&'a RawValue>,
    parts: OnceCell<Parts<'a>>,
}

type Members<'a> = BTreeMap<String, Document<'a>>;

#[derive(Debug)]
enum Parts<'a> {
    Object(Members<'a>),
    List(Vec<Document<'a>>),
    /// `None` is a value whose texts are no Unicode, which is compared by its spelling.
    Scalar(Option<Value>),
}

impl<'a> Document<'a> {
    fn read(text: &'a str) -> Result<Self, Error> {
        from_str(text).map(Self::of)
    }

    fn of(text: &'a RawValue) -> Self {
        Self(Rc::new(Inner { text: Some(text), parts: OnceCell::new() }))
    }

    fn made(parts: Parts<'a>) -> Self {
        Self(Rc::new(Inner { text: None, parts: OnceCell::from(parts) }))
    }

    fn text(&self) -> &'a str {
        self.0.text.map_or("", RawValue::get)
    }

    fn parts(&self) -> &Parts<'a> {
        self.0.parts.get_or_init(|| split(self.text()))
    }

    fn object(&self) -> Option<&Members<'a>> {
        match self.parts() {
            Parts::Object(members) => Some(members),
            _ => None,
        }
    }

    fn list(&self) -> Option<&[Self]> {
        match self.parts() {
            Parts::List(items) => Some(items),
            _ => None,
        }
    }

    /// A member that is not the empty text.
    fn member(&self, name: &str) -> Option<&Self> {
        self.object()?.get(name).filter(|value| value.text() != "\"\"")
    }

    /// The same text for equal values.
    fn canonical(&self, depth: usize) -> String {
        match self.parts() {
            _ if depth == 0 => to_string(self).unwrap_or_default(),
            Parts::Object(members) => {
                let member = |(name, value): (&String, &Self)| format!("{name:?}:{}", value.canonical(depth - 1));
                format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
            }
            Parts::List(items) => {
                format!("[{}]", items.iter().map(|item| item.canonical(depth - 1)).collect::<Vec<_>>().join(","))
            }
            Parts::Scalar(Some(value)) => value.to_string(),
            Parts::Scalar(None) => self.text().into(),
        }
    }

    /// The member that tells an item of a list apart, and its value.
    fn key(&self) -> Option<String> {
        KEYS.iter().find_map(|name| Some(format!("{name}={}", self.member(name)?.canonical(DEPTH))))
    }
}

fn split(text: &str) -> Parts<'_> {
    let parts = match text.as_bytes().first() {
        Some(b'{') => from_str::<BTreeMap<String, &RawValue>>(text).map(|members| {
            Parts::Object(members.into_iter().map(|(name, value)| (name, Document::of(value))).collect())
        }),
        Some(b'[') => {
            from_str::<Vec<&RawValue>>(text).map(|items| Parts::List(items.into_iter().map(Document::of).collect()))
        }
        _ => from_str(text).map(|value| Parts::Scalar(Some(value))),
    };
    parts.unwrap_or(Parts::Scalar(None))
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.0.text, self.parts()) {
            (Some(text), _) => text.serialize(serializer),
            (None, Parts::Object(members)) => members.serialize(serializer),
            (None, Parts::List(items)) => items.serialize(serializer),
            (None, Parts::Scalar(value)) => value.serialize(serializer),
        }
    }
}

impl PartialEq for Document<'_> {
    fn eq(&self, other: &Self) -> bool {
        if Rc::ptr_eq(&self.0, &other.0) || self.0.text.is_some() && self.text() == other.text() {
            return true;
        }
        match (self.parts(), other.parts()) {
            (Parts::Object(one), Parts::Object(other)) => one == other,
            (Parts::List(one), Parts::List(other)) => one == other,
            (Parts::Scalar(Some(one)), Parts::Scalar(Some(other))) => one == other,
            _ => false,
        }
    }
}

/// The value that `raw` becomes by the change from `before`, which may be absent, to `after`.
fn merge<'a>(raw: &Document<'a>, before: Option<&Document<'a>>, after: &Document<'a>, depth: usize) -> Document<'a> {
    if before == Some(after) {
        return raw.clone();
    }
    if raw.text() == "null" {
        return added(before, after);
    }
    if depth == 0 {
        return after.clone();
    }
    if let (Some(present), Some(wanted)) = (raw.object(), after.object()) {
        let none = Members::new();
        let was = before.and_then(Document::object).unwrap_or(&none);
        return Document::made(Parts::Object(merge_members(present, was, wanted, depth - 1)));
    }
    match (raw.list(), before.and_then(Document::list), after.list()) {
        (Some(present), Some(was), Some(wanted)) if present.len() == was.len() => {
            let item = |(origin, item): (Option<usize>, &Document<'a>)| match origin {
                Some(i) => merge(&present[i], Some(&was[i]), item, depth - 1),
                None => item.clone(),
            };
            Document::made(Parts::List(origins(was, wanted).into_iter().zip(wanted).map(item).collect()))
        }
        _ => after.clone(),
    }
}

fn merge_members<'a>(raw: &Members<'a>, before: &Members<'a>, after: &Members<'a>, depth: usize) -> Members<'a> {
    let mut members = raw.clone();
    members.retain(|name, _| after.contains_key(name) || !before.contains_key(name));
    for (name, value) in after {
        let was = before.get(name);
        if was != Some(value) {
            let present = raw.get(name);
            let merged = present.map_or_else(|| added(was, value), |present| merge(present, was, value, depth));
            members.insert(name.clone(), merged);
        }
    }
    members
}

/// The members that `after` adds to `before`: a type writes empty members that the object lacks, and should not get.
fn added<'a>(before: Option<&Document<'a>>, after: &Document<'a>) -> Document<'a> {
    let (Some(was), Some(wanted)) = (before.and_then(Document::object), after.object()) else { return after.clone() };
    let changed = wanted.iter().filter(|(name, value)| was.get(*name) != Some(value));
    Document::made(Parts::Object(changed.map(|(name, value)| (name.clone(), added(was.get(name), value))).collect()))
}

/// For each item of `to`, the index of its origin in `from`: equal items at the front and at the end first, then equal items, then
/// items of the same key, then items without a name at the same position. Each item of `from` is taken once.
fn origins<'a>(from: &[Document<'a>], to: &[Document<'a>]) -> Vec<Option<usize>> {
    let mut found = Origins { origin: vec![None; to.len()], taken: vec![false; from.len()] };
    let front = from.iter().zip(to).take_while(|(one, other)| one == other).count();
    let (from_rest, to_rest) = (from[front..].iter().rev(), to[front..].iter().rev());
    let back = from_rest.zip(to_rest).take_while(|(one, other)| one == other).count();
    (0..front).for_each(|i| found.take(i, i));
    (1..=back).for_each(|i| found.take(from.len() - i, to.len() - i));
    found.by(from, to, |item| Some(item.canonical(DEPTH)));
    found.by(from, to, Document::key);
    for (j, item) in to.iter().enumerate().take(from.len()) {
        if found.origin[j].is_none() && !found.taken[j] && item.member("name").is_none() {
            found.take(j, j);
        }
    }
    found.origin
}

/// Which items belong together.
struct Origins {
    /// By index of the new item.
    origin: Vec<Option<usize>>,
    /// By index of the old item.
    taken: Vec<bool>,
}

impl Origins {
    fn take(&mut self, i: usize, j: usize) {
        self.origin[j] = Some(i);
        self.taken[i] = true;
    }

    /// Takes items of the same identity: at the same position if possible, else in order.
    fn by<'d>(
        &mut self,
        from: &[Document<'d>],
        to: &[Document<'d>],
        identity: impl Fn(&Document<'d>) -> Option<String>,
    ) {
        let left = |(i, item): (usize, &Document<'d>)| if self.taken[i] { None } else { identity(item) };
        let old: Vec<Option<String>> = from.iter().enumerate().map(left).collect();
        let wanted = |(j, item): (usize, &Document<'d>)| if self.origin[j].is_some() { None } else { identity(item) };
        let new: Vec<Option<String>> = to.iter().enumerate().map(wanted).collect();
        for j in 0..new.len().min(old.len()) {
            if new[j].is_some() && new[j] == old[j] {
                self.take(j, j);
            }
        }
        let mut waiting: HashMap<&str, VecDeque<usize>> = HashMap::new();
        for (i, id) in old.iter().enumerate().filter(|(i, _)| !self.taken[*i]) {
            if let Some(id) = id {
                waiting.entry(id).or_default().push_back(i);
            }
        }
        for (j, id) in new.iter().enumerate() {
            let waiting = id.as_ref().and_then(|id| waiting.get_mut(&**id));
            if self.origin[j].is_none()
                && let Some(i) = waiting.and_then(VecDeque::pop_front)
            {
                self.take(i, j);
            }
        }
    }
}

/// The JSON Patch that makes `to` of `from`. One of more than 64 KiB is no longer than `to`, but for the names of its members.
fn difference<'a>(from: &Document<'a>, to: &Document<'a>) -> Result<Vec<u8>, Error> {
    let patch = difference_of(from, to, DEPTH)?;
    if patch.len() <= SMALL_PATCH || patch.len() <= to_vec(to)?.len() {
        return Ok(patch);
    }
    difference_of(from, to, 1)
}

fn difference_of<'a>(from: &Document<'a>, to: &Document<'a>, depth: usize) -> Result<Vec<u8>, Error> {
    let mut differ = Differ { operations: Vec::new(), path: String::new(), depth };
    differ.value(from, to);
    to_vec(&differ.operations)
}

#[derive(Serialize)]
struct Operation<'a> {
    op: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Document<'a>>,
}

/// Walks down two documents at once, and collects operations.
struct Differ<'a> {
    operations: Vec<Operation<'a>>,
    /// The JSON pointer to where it stands.
    path: String,
    /// How many levels it may still go down.
    depth: usize,
}

impl<'a> Differ<'a> {
    fn value(&mut self, from: &Document<'a>, to: &Document<'a>) {
        if from == to {
            return;
        }
        if self.depth > 0 {
            if let (Some(from), Some(to)) = (from.object(), to.object()) {
                return self.members(from, to);
            }
            if let (Some(from), Some(to)) = (from.list(), to.list())
                && self.items(from, to)
            {
                return;
            }
        }
        self.operations.push(Operation { op: "replace", path: self.path.clone(), value: Some(to.clone()) });
    }

    fn members(&mut self, from: &Members<'a>, to: &Members<'a>) {
        for name in from.keys().chain(to.keys()).collect::<BTreeSet<_>>() {
            let token = name.replace('~', "~0").replace('/', "~1");
            self.step(&token, from.get(name), to.get(name));
        }
    }

    /// Writes the difference of two lists; false if items have changed places.
    fn items(&mut self, from: &[Document<'a>], to: &[Document<'a>]) -> bool {
        let origins = origins(from, to);
        let kept: Vec<usize> = origins.iter().copied().flatten().collect();
        if !kept.is_sorted() {
            return false;
        }
        let kept: HashSet<usize> = kept.into_iter().collect();
        // From the end, so that no index moves before it is used.
        for i in (0..from.len()).rev().filter(|i| !kept.contains(i)) {
            self.step(&i.to_string(), Some(&from[i]), None);
        }
        for (j, origin) in origins.into_iter().enumerate() {
            self.step(&j.to_string(), origin.map(|i| &from[i]), Some(&to[j]));
        }
        true
    }

    /// Writes the difference of a member or an item.
    fn step(&mut self, token: &str, from: Option<&Document<'a>>, to: Option<&Document<'a>>) {
        let above = self.path.len();
        self.path.push('/');
        self.path.push_str(token);
        match (from, to) {
            (Some(from), Some(to)) => {
                self.depth -= 1;
                self.value(from, to);
                self.depth += 1;
            }
            (_, Some(_)) => self.operations.push(Operation { op: "add", path: self.path.clone(), value: to.cloned() }),
            _ => self.operations.push(Operation { op: "remove", path: self.path.clone(), value: None }),
        }
        self.path.truncate(above);
    }
}

#[cfg(test)]
#[path = "change_test.rs"]
mod tests;

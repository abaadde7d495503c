//! The tree as `get_tree` answers with it. A loop, not a recursion: a chain of a million
//! entries nests a million deep.

use crate::cursor::RawString;
use crate::entry::{EntryType, MessageRole};
use crate::json::quote;
use crate::nodes::{Children, Index};
use crate::preview::preview;
use crate::scan::Envelope;
use crate::tree::Snapshot;

/// Characters, as rpc-mode.md fixes them.
const MAX_PREVIEW: usize = 200;

/// Bytes that a node takes besides its preview, roughly.
const NODE_BYTES: usize = 160;

/// `{"roots": [...], "leafId": ...}`
pub(crate) fn tree_json(tree: &Snapshot) -> String {
    let nodes = &tree.nodes;
    let children = Children::of(nodes);
    let mut out = String::with_capacity(nodes.len() * NODE_BYTES);
    out.push_str(r#"{"roots":["#);
    let mut next = children.first(None);
    while let Some(mut index) = next {
        begin(tree, index, &mut out);
        next = children.first(Some(index));
        // Without children it ends here, and so may what it is in.
        while next.is_none() {
            out.push_str("]}");
            next = children.after(index);
            match (next, nodes.parent(index).in_tree()) {
                (Some(_), _) => out.push(','),
                (None, Some(parent)) => index = parent,
                (None, None) => break,
            }
        }
    }
    out.push_str(r#"],"leafId":"#);
    match tree.leaf {
        Some(leaf) => push_string(nodes.id(leaf), &mut out),
        None => out.push_str("null"),
    }
    out.push('}');
    out
}

/// A node up to its children.
fn begin(tree: &Snapshot, index: Index, out: &mut String) {
    let nodes = &tree.nodes;
    let (entry_type, role) = (nodes.entry_type(index), nodes.role(index));
    out.push_str(r#"{"id":"#);
    push_string(nodes.id(index), out);
    out.push_str(r#","parentId":"#);
    match nodes.parent_id(index) {
        Some(parent) => push_string(&parent, out),
        None => out.push_str("null"),
    }
    out.push_str(r#","type":"#);
    match entry_type {
        EntryType::Unknown => {
            let name = Envelope::parse(nodes.json(index)).map(|envelope| envelope.type_name);
            push_string(&name.map(RawString::decode).unwrap_or_default(), out);
        }
        known => push_string(known.name(), out),
    }
    let json = nodes.message_json(index);
    if entry_type == EntryType::Message {
        let role = role.map(MessageRole::name).or_else(|| role_name(json?));
        if let Some(role) = role {
            out.push_str(r#","role":"#);
            push_string(role, out);
        }
    }
    out.push_str(r#","preview":"#);
    let json = json.unwrap_or_else(|| nodes.json(index));
    push_string(&preview(entry_type, role, json, MAX_PREVIEW), out);
    out.push_str(r#","timestamp":""#);
    out.push_str(&nodes.timestamp(index).to_string());
    out.push('"');
    if let Some(label) = tree.label(index) {
        out.push_str(r#","label":"#);
        push_string(label, out);
    }
    out.push_str(r#","children":["#);
}

/// A role that this version does not know.
fn role_name(message: &str) -> Option<&str> {
    let mut role = None;
    crate::cursor::Cursor::new(message).object(|key, cursor| {
        match key.raw {
            "role" => role = cursor.string_value()?,
            _ => drop(cursor.value()?),
        }
        Some(())
    })?;
    role.filter(|role| !role.is_escaped).map(|role| role.raw)
}

fn push_string(text: &str, out: &mut String) {
    if text.bytes().any(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) {
        out.push_str(&quote(text));
    } else {
        out.push('"');
        out.push_str(text);
        out.push('"');
    }
}

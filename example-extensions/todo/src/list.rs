//! The list itself: its items, what can be done to it, and how it reads.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Item {
    id: u32,
    text: String,
    done: bool,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TodoList {
    items: Vec<Item>,
    /// Numbers are never used twice, also after `clear`.
    next_id: u32,
}

impl Default for TodoList {
    fn default() -> Self {
        Self { items: Vec::new(), next_id: 1 }
    }
}

impl TodoList {
    pub(crate) fn add(&mut self, text: String) -> String {
        let id = self.next_id;
        self.next_id += 1;
        let said = format!("Added to-do #{id}: {text}");
        self.items.push(Item { id, text, done: false });
        said
    }

    pub(crate) fn toggle(&mut self, id: u32) -> Option<String> {
        let item = self.items.iter_mut().find(|item| item.id == id)?;
        item.done = !item.done;
        let state = if item.done { "done" } else { "not done" };
        Some(format!("To-do #{id} is {state}"))
    }

    pub(crate) fn clear(&mut self) -> String {
        let count = self.items.len();
        self.items.clear();
        format!("Cleared {count} to-dos")
    }
}

impl fmt::Display for TodoList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.items.is_empty() {
            return f.write_str("No to-dos");
        }
        for (index, item) in self.items.iter().enumerate() {
            let line_feed = if index == 0 { "" } else { "\n" };
            let mark = if item.done { 'x' } else { ' ' };
            write!(f, "{line_feed}[{mark}] #{} {}", item.id, item.text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::TodoList;

    #[test]
    fn numbers_stay_with_their_items() {
        let mut list = TodoList::default();
        assert_eq!(list.to_string(), "No to-dos");
        list.add("caulk".to_owned());
        list.add("rig".to_owned());
        assert_eq!(list.toggle(2).as_deref(), Some("To-do #2 is done"));
        assert_eq!(list.to_string(), "[ ] #1 caulk\n[x] #2 rig");
        assert_eq!(list.toggle(9), None);
        assert_eq!(list.clear(), "Cleared 2 to-dos");
        assert_eq!(list.add("sail".to_owned()), "Added to-do #3: sail");
    }
}

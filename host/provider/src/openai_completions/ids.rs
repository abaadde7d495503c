//! Ids of tool calls that a server takes: a conversation may bring those of other
//! providers.

use std::collections::{HashMap, HashSet};

use super::compat::CallIdForm;

/// The longest id that OpenAI takes.
const MAX_STANDARD: usize = 40;
const NINE: usize = 9;

/// The ids of one request: one and the same for a call and its result, different ones for
/// different calls, and the same again for a conversation that has grown, so that
/// prompt caches still hit.
#[derive(Debug)]
pub(super) struct CallIds {
    form: CallIdForm,
    given: HashMap<String, String>,
    used: HashSet<String>,
}

impl CallIds {
    pub(super) fn new(form: CallIdForm) -> Self {
        Self { form, given: HashMap::new(), used: HashSet::new() }
    }

    pub(super) fn get(&mut self, id: &str) -> String {
        if let Some(given) = self.given.get(id) {
            return given.clone();
        }
        let mut salt = 0;
        let mut sent = self.plain(id).unwrap_or_else(|| self.hashed(id, salt));
        while !self.used.insert(sent.clone()) {
            sent = self.hashed(id, salt);
            salt += 1;
        }
        self.given.insert(id.to_owned(), sent.clone());
        sent
    }

    /// The id as it was sent before, if there was a call with it.
    pub(super) fn known(&self, id: &str) -> Option<&str> {
        self.given.get(id).map(String::as_str)
    }

    /// The id itself, where it fits. Of an id with a second part, as the Responses API
    /// has it ("call_abc|fc_123"), the first one names the call.
    fn plain(&self, id: &str) -> Option<String> {
        let first = id.split('|').next().unwrap_or_default();
        let fits = match self.form {
            CallIdForm::Standard => {
                (1..=MAX_STANDARD).contains(&first.len()) && first.chars().all(is_standard)
            }
            CallIdForm::Nine => {
                first.len() == NINE && first.chars().all(|c| c.is_ascii_alphanumeric())
            }
        };
        fits.then(|| first.to_owned())
    }

    fn hashed(&self, id: &str, salt: u64) -> String {
        let hash = fnv1a(id, salt);
        match self.form {
            CallIdForm::Standard => {
                let hash = format!("{hash:016x}");
                let front = id.chars().take(MAX_STANDARD - hash.len() - 1);
                let front: String = front.map(|c| if is_standard(c) { c } else { '_' }).collect();
                format!("{front}_{hash}")
            }
            CallIdForm::Nine => {
                let digits = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
                let mut rest = hash;
                let digit = |_| {
                    let at = usize::try_from(rest % 62).unwrap_or_default();
                    rest /= 62;
                    char::from(digits[at])
                };
                (0..NINE).map(digit).collect()
            }
        }
    }
}

const fn is_standard(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// FNV-1a, 64 bits: the same in every build, which the standard library's hashers do not
/// promise.
fn fnv1a(text: &str, salt: u64) -> u64 {
    let bytes = text.bytes().chain(salt.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_fit_stay() {
        let mut ids = CallIds::new(CallIdForm::Standard);
        for (id, expect) in [
            ("call_abc", "call_abc"),
            ("toolu_01A-b", "toolu_01A-b"),
            ("call_xyz|fc_123", "call_xyz"),
        ] {
            assert_eq!(ids.get(id), expect);
            assert_eq!(ids.get(id), expect, "the second time");
        }
        let mut ids = CallIds::new(CallIdForm::Nine);
        assert_eq!(ids.get("abcDEF123"), "abcDEF123");
    }

    #[test]
    fn ids_that_do_not_fit_are_replaced_by_different_ones() {
        let long = "x".repeat(400);
        let longer = format!("{long}y");
        let odd = [
            "",
            "|",
            "functions.bash:0",
            "functions.bash:1",
            "a b",
            "a_b",
            "a|b",
            "a|c",
            "a",
            "é",
            &long,
            &longer,
            "call_abc|fc_1",
            "call_abc|fc_2",
            "call_abc",
            "abcdefghi",
            "abcdefgh_",
        ];
        for form in [CallIdForm::Standard, CallIdForm::Nine] {
            let mut ids = CallIds::new(form);
            let sent: Vec<String> = odd.iter().map(|id| ids.get(id)).collect();
            for id in &sent {
                match form {
                    CallIdForm::Standard => {
                        assert!(
                            (1..=40).contains(&id.len()) && id.chars().all(is_standard),
                            "{id}"
                        );
                    }
                    CallIdForm::Nine => {
                        assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()));
                    }
                }
            }
            assert_eq!(sent.iter().collect::<HashSet<_>>().len(), odd.len(), "{sent:?}");
            // The same again, and not another one when there are more.
            let mut again = CallIds::new(form);
            let same: Vec<String> = odd.iter().take(5).map(|id| again.get(id)).collect();
            assert_eq!(same, sent[..5]);
        }
    }
}

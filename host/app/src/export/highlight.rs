//! Colours for code: languages, and scopes to the few classes that `style.css` knows.
//! Not here: diffs.

use std::cell::OnceCell;
use std::io;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

use super::html::Html;

/// A grammar costs up to a second for a megabyte: larger blocks, in bytes, stay plain.
const MAX_BLOCK: usize = 200_000;
/// Bytes; a longer line is no code that a person wrote.
const MAX_LINE: usize = 2_000;
/// What an export spends on colours. What comes after that stays plain; the current
/// branch comes first.
const MAX_TIME: Duration = Duration::from_secs(4);

/// Which language a block is in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Language<'a> {
    Plain,
    /// As a fenced block names it.
    Named(&'a str),
    OfFile(&'a str),
}

impl Language<'_> {
    fn syntax(self, set: &SyntaxSet) -> Option<&SyntaxReference> {
        let found = match self {
            Self::Plain => None,
            Self::Named(name) => {
                let end = name.find(|c: char| c.is_whitespace() || ",{:".contains(c));
                set.find_syntax_by_token(grammar(&name[..end.unwrap_or(name.len())]))
            }
            Self::OfFile(path) => {
                let path = Path::new(path);
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let extension =
                    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
                // `Makefile` has no extension.
                set.find_syntax_by_extension(name)
                    .or_else(|| set.find_syntax_by_extension(grammar(extension)))
            }
        };
        // Markdown loads the grammars of all languages in its fences, the slow ones too.
        found.filter(|syntax| !["Plain Text", "Markdown", "MultiMarkdown"].contains(&&*syntax.name))
    }
}

/// The name of a grammar that is there and quick.
fn grammar(name: &str) -> &str {
    match name {
        "console" | "shell" | "zsh" => "sh",
        "jsonl" | "jsonc" | "json5" => "json",
        // The grammar of TypeScript takes five times the time and three times the memory,
        // for the colours of a few types.
        "ts" | "tsx" | "mts" | "cts" | "typescript" | "jsx" | "mjs" | "cjs" => "js",
        name => name,
    }
}

/// Scope prefixes and the opening tags of their tokens; the longest that fits wins.
static CLASSES: LazyLock<Vec<(Scope, &'static str)>> = LazyLock::new(|| {
    let pairs = [
        ("comment", OPEN_COMMENT),
        ("punctuation.definition.comment", OPEN_COMMENT),
        ("string", OPEN_STRING),
        ("punctuation.definition.string", OPEN_STRING),
        ("constant.character.escape", OPEN_NUMBER),
        ("constant", OPEN_NUMBER),
        ("keyword", OPEN_KEYWORD),
        ("keyword.operator", ""),
        ("storage", OPEN_KEYWORD),
        ("storage.type.numeric", OPEN_NUMBER),
        ("variable.language", OPEN_KEYWORD),
        ("variable.function", OPEN_FUNCTION),
        ("entity.name.function", OPEN_FUNCTION),
        ("support.function", OPEN_FUNCTION),
        ("entity.name", OPEN_TYPE),
        ("entity.name.tag", OPEN_KEYWORD),
        ("entity.other.inherited-class", OPEN_TYPE),
        ("entity.other.attribute-name", OPEN_FUNCTION),
        ("support.type", OPEN_TYPE),
        ("support.class", OPEN_TYPE),
        ("support.type.property-name", OPEN_FUNCTION),
        ("markup.heading", OPEN_TYPE),
        ("markup.raw", OPEN_STRING),
        ("markup.inserted", OPEN_INSERTED),
        ("markup.deleted", OPEN_DELETED),
        ("invalid", ""),
        ("meta.interpolation", ""),
        ("meta.template.expression", ""),
    ];
    pairs.into_iter().filter_map(|(name, open)| Some((Scope::new(name).ok()?, open))).collect()
});

const OPEN_COMMENT: &str = r#"<span class="hc">"#;
const OPEN_STRING: &str = r#"<span class="hs">"#;
const OPEN_NUMBER: &str = r#"<span class="hn">"#;
const OPEN_KEYWORD: &str = r#"<span class="hk">"#;
const OPEN_FUNCTION: &str = r#"<span class="hf">"#;
const OPEN_TYPE: &str = r#"<span class="ht">"#;
const OPEN_INSERTED: &str = r#"<span class="ins">"#;
const OPEN_DELETED: &str = r#"<span class="del">"#;

/// The opening tag for a token; empty where it has the colour of text.
fn opening(stack: &ScopeStack) -> &'static str {
    for scope in stack.as_slice().iter().rev() {
        let fits = CLASSES.iter().filter(|(prefix, _)| prefix.is_prefix_of(*scope));
        if let Some((_, open)) = fits.max_by_key(|(prefix, _)| prefix.len()) {
            return open;
        }
    }
    ""
}

/// One for each export, as compiled grammars take some megabytes each.
#[derive(Debug)]
pub(super) struct Highlighter {
    syntaxes: OnceCell<SyntaxSet>,
    left: Duration,
}

impl Highlighter {
    pub(super) fn new() -> Self {
        Self { syntaxes: OnceCell::new(), left: MAX_TIME }
    }

    /// Writes code, coloured where the language is known and the limits allow.
    pub(super) fn code(
        &mut self,
        html: &mut Html<'_>,
        code: &str,
        language: Language<'_>,
    ) -> io::Result<()> {
        if code.len() > MAX_BLOCK || self.left.is_zero() {
            return html.text(code);
        }
        if matches!(language, Language::Plain | Language::Named("")) {
            return html.text(code);
        }
        let syntaxes = self.syntaxes.get_or_init(two_face::syntax::extra_newlines);
        let Some(syntax) = language.syntax(syntaxes) else { return html.text(code) };
        let start = Instant::now();
        let mut at = 0;
        let mut state = ParseState::new(syntax);
        let mut stack = ScopeStack::new();
        let mut run = Run { open: "", start: 0, end: 0 };
        for line in code.split_inclusive('\n') {
            if line.len() > MAX_LINE || start.elapsed() > self.left {
                break;
            }
            // A pattern that gives up costs the colours from there on.
            let Ok(ops) = state.parse_line(line, syntaxes) else { break };
            for (offset, op) in &ops {
                run.extend(html, code, at + offset, &stack)?;
                if stack.apply(op).is_err() {
                    stack = ScopeStack::new();
                }
            }
            at += line.len();
            run.extend(html, code, at, &stack)?;
        }
        run.flush(html, code)?;
        self.left = self.left.saturating_sub(start.elapsed());
        html.text(&code[at..])
    }
}

/// Text of one colour that isn't written yet.
struct Run {
    open: &'static str,
    start: usize,
    end: usize,
}

impl Run {
    /// The text up to `end` has the scopes of `stack`.
    fn extend(
        &mut self,
        html: &mut Html<'_>,
        code: &str,
        end: usize,
        stack: &ScopeStack,
    ) -> io::Result<()> {
        let text = &code[self.end..end];
        // Blanks have no colour.
        if !text.trim_start().is_empty() {
            let open = opening(stack);
            if open != self.open {
                self.flush(html, code)?;
                self.open = open;
            }
        }
        self.end = end;
        Ok(())
    }

    fn flush(&mut self, html: &mut Html<'_>, code: &str) -> io::Result<()> {
        let text = &code[self.start..self.end];
        self.start = self.end;
        if text.is_empty() || self.open.is_empty() {
            return html.text(text);
        }
        html.wrapped(self.open, text, "</span>")
    }
}

#[cfg(test)]
mod unit {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn highlighted(code: &str, language: Language<'_>) -> String {
        let mut out = Vec::new();
        Highlighter::new().code(&mut Html::new(&mut out), code, language).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn code_is_coloured() {
        for (language, code, expect) in [
            (
                Language::Named("rust"),
                "let x = \"<b>\"; // y\n",
                "<span class=\"hk\">let</span> x = <span class=\"hs\">&quot;&lt;b&gt;&quot;</span>; <span class=\"hc\">// y\n</span>",
            ),
            (
                Language::OfFile("a/b.ts"),
                "const x = 1;",
                "<span class=\"hk\">const </span>x = <span class=\"hn\">1</span>;",
            ),
            (
                Language::OfFile("Cargo.toml"),
                "[a]\nb = 1\n",
                "[<span class=\"ht\">a</span>]\n<span class=\"hk\">b </span>= <span class=\"hn\">1\n</span>",
            ),
            (Language::Named("no-such-language"), "let <x>", "let &lt;x&gt;"),
            (Language::Named(""), "let", "let"),
            (Language::OfFile(""), "let", "let"),
            (Language::Plain, "let", "let"),
        ] {
            assert_eq!(highlighted(code, language), expect, "{language:?}");
        }
    }

    #[test]
    fn languages_are_known() {
        let set = two_face::syntax::extra_newlines();
        for name in [
            "bash",
            "c",
            "cpp",
            "css",
            "dockerfile",
            "go",
            "html",
            "java",
            "js",
            "json",
            "jsonl",
            "jsx",
            "kotlin",
            "lua",
            "make",
            "php",
            "py",
            "python",
            "rb",
            "rs",
            "rust",
            "scss",
            "sh",
            "sql",
            "swift",
            "toml",
            "ts",
            "tsx",
            "typescript",
            "xml",
            "yaml",
            "yml",
        ] {
            assert!(Language::Named(name).syntax(&set).is_some(), "{name}");
        }
        for none in ["md", "markdown", "txt", "", "no-such-language"] {
            assert!(Language::Named(none).syntax(&set).is_none(), "{none}");
        }
        for file in ["/x/Makefile", "Dockerfile", "a.mts", "b.tsx", ".bashrc", "c.rs", "d.yml"] {
            assert!(Language::OfFile(file).syntax(&set).is_some(), "{file}");
        }
    }

    #[test]
    fn limits_leave_text_plain() {
        let long_line = format!("let x;\n{}\nlet y;", "a ".repeat(MAX_LINE));
        let coloured = highlighted(&long_line, Language::Named("rust"));
        assert_eq!(coloured.matches("<span").count(), 1, "{coloured}");
        assert!(coloured.ends_with("\nlet y;"));

        let large = "let x;\n".repeat(MAX_BLOCK / 7 + 1);
        assert_eq!(highlighted(&large, Language::Named("rust")), large);

        let mut out = Vec::new();
        let mut spent = Highlighter { left: Duration::ZERO, ..Highlighter::new() };
        spent.code(&mut Html::new(&mut out), "let x", Language::Named("rust")).unwrap();
        assert_eq!(out, b"let x");
    }
}

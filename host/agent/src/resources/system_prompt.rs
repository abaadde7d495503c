//! The system prompt, put together from its parts. The same parts give the same text,
//! byte for byte, which providers' prompt caches rely on.

use std::collections::HashSet;
use std::path::Path;

use super::context_files::ContextFile;
use super::skills::Skill;
use super::xml::escape;
use crate::tool::ToolSpec;

const BASE: &str = "You are Wharf, a coding agent. You work in a person's directory through tools: \
you look at files, change them, run commands, and say what you did and found.";

/// Hold for every run; each tool adds its own.
const GUIDELINES: [&str; 4] = [
    "Look before you change: read the code that a change touches, and follow its style.",
    "Do what was asked, and no more; ask when two readings would lead to different work.",
    "Check your work with the project's own build and tests where there are any.",
    "Be brief, name files by their paths, and say plainly what failed or was not done.",
];

/// A skill's text can be had with either.
const SKILL_TOOL: &str = "skill";
const READ_TOOL: &str = "read";

#[derive(Debug, Clone, Copy)]
pub struct SystemPrompt<'a> {
    /// Takes the place of Wharf's own text, its list of tools and its guidelines.
    pub replacement: Option<&'a str>,
    pub tools: &'a [&'a ToolSpec],
    pub context_files: &'a [ContextFile],
    pub skills: &'a [Skill],
    pub appended: Option<&'a str>,
    /// Today, as `2026-01-31`.
    pub date: &'a str,
    pub cwd: &'a Path,
}

impl SystemPrompt<'_> {
    pub fn build(&self) -> String {
        let sections = [
            self.opening(),
            self.context(),
            self.available_skills(),
            self.appended.unwrap_or_default().trim().to_owned(),
            format!(
                "Current date: {}\nCurrent working directory: {}",
                self.date,
                self.cwd.display()
            ),
        ];
        let present: Vec<_> = sections.into_iter().filter(|text| !text.is_empty()).collect();
        present.join("\n\n")
    }

    fn opening(&self) -> String {
        if let Some(replacement) = self.replacement {
            return replacement.trim().to_owned();
        }
        let mut text = BASE.to_owned();
        if !self.tools.is_empty() {
            text.push_str("\n\nYour tools:");
            for tool in self.tools {
                let first_line = tool.description.lines().next().unwrap_or_default();
                let snippet = tool.prompt_snippet.as_deref().unwrap_or(first_line);
                text.push_str(&format!("\n- {}: {snippet}", tool.name));
            }
        }
        text.push_str("\n\nGuidelines:");
        let of_tools = self.tools.iter().flat_map(|tool| &tool.prompt_guidelines);
        let mut written = HashSet::new();
        for guideline in GUIDELINES.into_iter().chain(of_tools.map(String::as_str)) {
            // Related tools give the same advice.
            if written.insert(guideline.trim()) {
                text.push_str(&format!("\n- {}", guideline.trim()));
            }
        }
        text
    }

    fn context(&self) -> String {
        let mut text = String::new();
        for file in self.context_files {
            let content = file.content.trim();
            if content.is_empty() {
                continue;
            }
            if text.is_empty() {
                text.push_str(
                    "Instructions for this directory follow; where they differ, the later ones hold.",
                );
            }
            text.push_str(&format!(
                "\n\n<context_file path=\"{}\">\n{content}\n</context_file>",
                escape(&file.path.to_string_lossy())
            ));
        }
        text
    }

    fn available_skills(&self) -> String {
        let has = |name: &str| self.tools.iter().any(|tool| tool.name == name);
        let how = if has(SKILL_TOOL) {
            "call the `skill` tool with its name"
        } else if has(READ_TOOL) {
            "read the file at its location; relative paths in it start at that file's directory"
        } else {
            return String::new();
        };
        let mut listed =
            self.skills.iter().filter(|skill| !skill.disable_model_invocation).peekable();
        if listed.peek().is_none() {
            return String::new();
        }
        let mut text = format!(
            "Skills are instructions for particular tasks. When a task fits a skill's description, {how}.\n\n<available_skills>"
        );
        for skill in listed {
            text.push_str(&format!(
                "\n  <skill>\n    <name>{}</name>\n    <description>{}</description>\n    <location>{}</location>\n  </skill>",
                escape(&skill.name),
                escape(&skill.description),
                escape(&skill.path.to_string_lossy()),
            ));
        }
        text.push_str("\n</available_skills>");
        text
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::resources::location::Location;

    fn tool(name: &str, snippet: Option<&str>, guidelines: &[&str]) -> ToolSpec {
        ToolSpec {
            name: name.to_owned(),
            label: name.to_owned(),
            description: format!("Description of {name}.\nMore of it."),
            parameters: serde_json::json!({"type": "object"}),
            prompt_snippet: snippet.map(str::to_owned),
            prompt_guidelines: guidelines.iter().map(|&line| line.to_owned()).collect(),
            sequential: false,
        }
    }

    fn skill(name: &str, description: &str, disabled: bool) -> Skill {
        Skill {
            name: name.to_owned(),
            description: description.to_owned(),
            argument_hint: None,
            user_invocable: true,
            disable_model_invocation: disabled,
            path: PathBuf::from(format!("/skills/{name}/SKILL.md")),
            dir: PathBuf::from(format!("/skills/{name}")),
            location: Location::User,
        }
    }

    fn bare<'a>() -> SystemPrompt<'a> {
        SystemPrompt {
            replacement: Some("Base."),
            tools: &[],
            context_files: &[],
            skills: &[],
            appended: None,
            date: "2026-01-31",
            cwd: Path::new("/project"),
        }
    }

    #[test]
    fn all_parts() {
        let read = tool("read", Some("Reads a file"), &["Read whole files."]);
        let other = tool("other", None, &["Read whole files.", "Another."]);
        let prompt = SystemPrompt {
            replacement: None,
            tools: &[&read, &other],
            context_files: &[
                ContextFile { path: PathBuf::from("/a/AGENTS.md"), content: "One.\n".to_owned() },
                ContextFile { path: PathBuf::from("/b/AGENTS.md"), content: " \n".to_owned() },
                ContextFile { path: PathBuf::from("/c/AGENTS.md"), content: "Two.".to_owned() },
            ],
            skills: &[skill("one", "For <one> & \"all\".", false), skill("two", "Hidden.", true)],
            appended: Some("Appended.\n"),
            ..bare()
        };
        insta::assert_snapshot!(prompt.build(), @r#"
        You are Wharf, a coding agent. You work in a person's directory through tools: you look at files, change them, run commands, and say what you did and found.

        Your tools:
        - read: Reads a file
        - other: Description of other.

        Guidelines:
        - Look before you change: read the code that a change touches, and follow its style.
        - Do what was asked, and no more; ask when two readings would lead to different work.
        - Check your work with the project's own build and tests where there are any.
        - Be brief, name files by their paths, and say plainly what failed or was not done.
        - Read whole files.
        - Another.

        Instructions for this directory follow; where they differ, the later ones hold.

        <context_file path="/a/AGENTS.md">
        One.
        </context_file>

        <context_file path="/c/AGENTS.md">
        Two.
        </context_file>

        Skills are instructions for particular tasks. When a task fits a skill's description, read the file at its location; relative paths in it start at that file's directory.

        <available_skills>
          <skill>
            <name>one</name>
            <description>For &lt;one&gt; &amp; &quot;all&quot;.</description>
            <location>/skills/one/SKILL.md</location>
          </skill>
        </available_skills>

        Appended.

        Current date: 2026-01-31
        Current working directory: /project
        "#);
    }

    #[test]
    fn a_replacement_takes_the_place_of_text_tools_and_guidelines() {
        let read = tool("read", Some("Reads a file"), &["Read whole files."]);
        let prompt = SystemPrompt { tools: &[&read], ..bare() };
        insta::assert_snapshot!(prompt.build(), @r"
        Base.

        Current date: 2026-01-31
        Current working directory: /project
        ");
        let empty = SystemPrompt { replacement: Some(""), ..bare() };
        assert!(empty.build().starts_with("Current date: "));
    }

    #[test]
    fn skills_need_a_tool_to_be_read_with() {
        let skills = [skill("one", "d", false)];
        let read = tool("read", None, &[]);
        let bash = tool("bash", None, &[]);
        let own = tool("skill", None, &[]);
        let build = |tools: &[&ToolSpec], skills: &[Skill]| {
            SystemPrompt { tools, skills, ..bare() }.build()
        };
        assert!(!build(&[&bash], &skills).contains("skill"));
        assert!(build(&[&read, &bash], &skills).contains("read the file at its location"));
        assert!(build(&[&read, &own], &skills).contains("call the `skill` tool"));
        assert!(!build(&[&read], &[skill("one", "d", true)]).contains("skill"));
    }

    #[test]
    fn the_same_parts_give_the_same_text() {
        let tools: Vec<_> =
            (0..20).map(|n| tool(&format!("t{n}"), None, &["Same.", "Same too."])).collect();
        let tools: Vec<_> = tools.iter().collect();
        let prompt = SystemPrompt { replacement: None, tools: &tools, ..bare() };
        assert_eq!(prompt.build(), prompt.build());
        assert_eq!(prompt.build().matches("Same.").count(), 1);
    }
}

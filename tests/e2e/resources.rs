//! Skills, prompt templates and the system prompt, as the model gets them.

use serde_json::{Value, json};
use wharf_tests::script::says;
use wharf_tests::{Env, Wharf, guest};

/// A model that answers everything.
fn any_reply(env: &Env) -> String {
    let mut reply = says("ok");
    reply["repeat"] = json!(true);
    env.script(&[reply])
}

fn start(env: &Env) -> Wharf {
    let model = any_reply(env);
    env.rpc(&["--model", &model])
}

/// What the conversation holds of a message.
fn sent(wharf: &mut Wharf, message: &str) -> String {
    wharf.run(message);
    let data = wharf.data(json!({"type": "get_messages"}));
    let messages = data["messages"].as_array().unwrap();
    let user = messages.iter().rfind(|message| message["role"] == "user").unwrap();
    match &user["content"] {
        Value::String(text) => text.clone(),
        blocks => blocks[0]["text"].as_str().unwrap().to_owned(),
    }
}

/// Expansions of one template body, by arguments.
#[track_caller]
fn check(body: &str, cases: &[(&str, &str)]) {
    let env = Env::new();
    env.write_agent("prompts/t.md", body);
    let mut wharf = start(&env);
    for (arguments, expected) in cases {
        let found = sent(&mut wharf, &format!("/t {arguments}"));
        assert_eq!(found.trim_end(), *expected, "{body:?} with {arguments:?}");
    }
}

#[test]
fn arguments_are_put_in_by_number() {
    check(
        "1=$1 2=$2 3=$3.",
        &[
            ("a b c", "1=a 2=b 3=c."),
            ("a", "1=a 2= 3=."),
            ("\"a b\" 'c d' e\\ f", "1=a b 2=c d 3=e f."),
            ("it's", "1=it's 2= 3=."),
            ("", "1= 2= 3=."),
        ],
    );
}

#[test]
fn all_arguments_are_put_in_together() {
    check("[$@] [$ARGUMENTS]", &[("a b c", "[a b c] [a b c]"), ("", "[] []")]);
}

#[test]
fn slices_of_the_arguments_are_put_in() {
    check(
        "[${@:2}] [${@:2:1}] [${@:1:2}] [${@:9}]",
        &[("a b c d", "[b c d] [b] [a b] []"), ("a", "[] [] [a] []")],
    );
}

/// One pass: what was put in is text, whatever it looks like.
#[test]
fn what_was_put_in_is_not_scanned_again() {
    check(
        "$1|$2|$@|${@:2}",
        &[
            ("'$2' x", "$2|x|$2 x|x"),
            ("'${@:1}' '$ARGUMENTS'", "${@:1}|$ARGUMENTS|${@:1} $ARGUMENTS|$ARGUMENTS"),
            ("'$1'", "$1||$1|"),
        ],
    );
}

#[test]
fn other_dollars_are_left_alone() {
    check("costs $ 5, $HOME, $x: $1", &[("a", "costs $ 5, $HOME, $x: a")]);
}

#[test]
fn arguments_without_a_place_are_appended() {
    let env = Env::new();
    env.write_agent(
        "skills/plain/SKILL.md",
        "---\nname: plain\ndescription: D\n---\nJust do it.\n",
    );
    env.write_agent("prompts/t.md", "Just do it.");
    let mut wharf = start(&env);
    for command in ["/skill:plain", "/t"] {
        let text = sent(&mut wharf, &format!("{command} the 'quoted thing' now"));
        assert!(text.contains("Just do it."), "{text}");
        let (_, after) = text.split_once("Just do it.").unwrap();
        assert!(
            after.contains("the 'quoted thing' now") || after.contains("the quoted thing now"),
            "{text}"
        );
        let text = sent(&mut wharf, command);
        assert!(text.contains("Just do it.") && !text.contains("ARGUMENTS"), "{text}");
    }
}

#[test]
fn a_skill_is_its_body_with_arguments() {
    let env = Env::new();
    let skill = "---\nname: review\ndescription: >\n  Reviews\n  code.\nargument-hint: \"[file]\"\n---\n\
        Review $1 with ${@:2}; all: $ARGUMENTS.\nHelp: ${WHARF_SKILL_DIR}/help.md in ${WHARF_SESSION_ID}\n";
    let file = env.write_agent("skills/review/SKILL.md", skill);
    let mut wharf = start(&env);
    let text = sent(&mut wharf, "/skill:review 'a b' c '$1'");
    let session =
        wharf.data(json!({"type": "get_state"}))["sessionId"].as_str().unwrap().to_owned();
    assert!(text.contains("Review a b with c $1; all: "), "{text}");
    let dir = file.parent().unwrap().display();
    assert!(text.contains(&format!("Help: {dir}/help.md in {session}")), "{text}");
    assert!(!text.contains("argument-hint"), "{text}");
    let commands = wharf.data(json!({"type": "get_commands"}));
    assert_eq!(
        commands["commands"],
        json!([{"name": "skill:review", "description": "Reviews code.", "argumentHint": "[file]",
            "source": "skill", "location": "user", "path": file}])
    );
}

/// A name that nothing has is text for the model, as it was written.
#[test]
fn unknown_names_are_left_as_they_are() {
    let env = Env::new();
    let mut wharf = start(&env);
    for message in ["/nothing 'x  y' $1", "/skill:nothing x", "/", "// comment", " /t x"] {
        assert_eq!(sent(&mut wharf, message), message);
    }
}

#[test]
fn messages_that_wait_are_expanded_too() {
    let env = Env::new();
    env.write_agent("prompts/t.md", "expanded $1");
    let slow = json!({"content": [{"type": "text", "text": "x".repeat(200)}],
        "chunkChars": 1, "delayMs": 5, "repeat": true});
    let model = env.script(&[slow]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.prompt("go");
    wharf.wait_event("message_update");
    for (kind, argument) in [("steer", "one"), ("follow_up", "two")] {
        let message = format!("/t {argument}");
        let response = wharf.request(json!({"type": kind, "message": message}));
        assert_eq!(response["success"], true, "{response}");
    }
    wharf.until("agent_end", |line| line["type"] == "agent_end");
    let messages = wharf.data(json!({"type": "get_messages"})).to_string();
    assert!(messages.contains("expanded one") && messages.contains("expanded two"), "{messages}");
}

#[test]
fn a_project_template_comes_before_the_users() {
    let env = Env::new();
    env.write_agent("prompts/t.md", "user");
    env.write(".wharf/prompts/t.md", "---\ndescription: Mine\n---\nproject");
    env.write(".wharf/prompts/deeper/u.md", "not found");
    let model = any_reply(&env);
    let mut wharf = env.rpc(&["--model", &model, "--trust-project"]);
    assert_eq!(sent(&mut wharf, "/t").trim(), "project");
    let commands = wharf.data(json!({"type": "get_commands"}));
    let commands = commands["commands"].as_array().unwrap();
    assert_eq!(commands.len(), 1, "{commands:?}");
    assert_eq!(
        (&commands[0]["description"], &commands[0]["location"]),
        (&json!("Mine"), &json!("project"))
    );
    let mut wharf = env.rpc(&["--model", &model, "--trust-project", "--no-prompt-templates"]);
    assert_eq!(sent(&mut wharf, "/t"), "/t");
}

#[test]
fn flags_name_skills_and_templates() {
    let env = Env::new();
    env.write_agent("skills/mine/SKILL.md", "---\nname: mine\ndescription: D\n---\nM");
    env.write("given/SKILL.md", "---\nname: given\ndescription: D\n---\nGIVEN");
    env.write("given.md", "template $1");
    let model = any_reply(&env);
    let flags = ["--no-skills", "--skill", "given", "--prompt-template", "given.md"];
    let mut wharf = env.rpc(&[&["--model", &model][..], &flags].concat());
    let commands = wharf.data(json!({"type": "get_commands"}));
    let names: Vec<&str> = commands["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| command["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["given", "skill:given"]);
    assert_eq!(sent(&mut wharf, "/given x").trim(), "template x");
    assert!(sent(&mut wharf, "/skill:given").contains("GIVEN"));
    assert_eq!(sent(&mut wharf, "/skill:mine"), "/skill:mine");
}

/// What is wrong with a file is told with its name; the others work.
#[test]
fn broken_skills_are_told_and_stop_nothing() {
    let env = Env::new();
    env.write_agent("skills/good/SKILL.md", "---\nname: good\ndescription: D\n---\nG");
    let nameless = env.write_agent("skills/nameless/SKILL.md", "---\nname: nameless\n---\nN");
    let yaml = env.write_agent("skills/yaml/SKILL.md", "---\nname: [\n---\nY");
    let mut wharf = env.rpc(&[]);
    let commands = wharf.data(json!({"type": "get_commands"}));
    assert_eq!(commands["commands"].as_array().unwrap().len(), 1, "{commands}");
    let exit = wharf.finish();
    for file in [nameless, yaml] {
        let file = file.to_str().unwrap();
        assert!(exit.stderr.contains(file), "{file}: {}", exit.stderr);
        let told = exit.rest.iter().any(|line| line["extensionPath"] == file);
        assert!(told, "{}", exit.transcript);
    }
}

fn system_prompt(env: &Env, args: &[&str]) -> String {
    let probe = guest("probe");
    let args = [args, &["--model", "scripted/demo", "-e", probe.to_str().unwrap()]].concat();
    let mut wharf = env.rpc(&args);
    wharf.data(json!({"type": "get_commands"}));
    wharf.prompt("/agent-system-prompt");
    let shown: Value = serde_json::from_str(&wharf.wait_notify()).unwrap();
    shown["result"].as_str().unwrap().to_owned()
}

#[test]
fn the_system_prompt_tells_of_tools_skills_and_context() {
    let env = Env::new();
    env.write_agent("AGENTS.md", "Everywhere: be brief.");
    env.write("AGENTS.md", "Here: use tabs.");
    env.write("CLAUDE.md", "Not read, since AGENTS.md is there.");
    let file = env.write_agent(
        "skills/review/SKILL.md",
        "---\nname: review\ndescription: Reviews <code> & more.\n---\nTHE BODY",
    );
    env.write_agent(
        "skills/hidden/SKILL.md",
        "---\nname: hidden\ndescription: H\ndisable-model-invocation: true\n---\nH",
    );
    let hello = guest("hello");
    let prompt = system_prompt(&env, &["-e", hello.to_str().unwrap()]);
    for tool in ["read", "write", "edit", "bash", "grep", "find", "ls"] {
        assert!(prompt.contains(&format!("\n- {tool}: ")), "{tool}: {prompt}");
    }
    assert!(prompt.contains("\n- greet: Greets a person by name."), "{prompt}");
    let skill = format!(
        "<skill>\n    <name>review</name>\n    <description>Reviews &lt;code&gt; &amp; more.</description>\n    <location>{}</location>\n  </skill>",
        file.display()
    );
    assert!(prompt.contains(&skill), "{prompt}");
    assert!(!prompt.contains("THE BODY"), "disclosed too early: {prompt}");
    assert!(!prompt.contains("hidden"), "{prompt}");
    let user = prompt.find("Everywhere: be brief.").expect("the agent dir's context file");
    let here = prompt.find("Here: use tabs.").expect("the project's context file");
    assert!(user < here);
    assert!(!prompt.contains("Not read"));
    assert!(prompt.contains(&format!("Current working directory: {}", env.project().display())));
}

#[test]
fn context_files_of_the_folders_above_count_and_claude_md_stands_in() {
    let env = Env::new();
    env.write("CLAUDE.md", "From above.");
    env.write("inner/AGENTS.md", "From within.");
    let probe = guest("probe");
    let mut command = env.command();
    command
        .current_dir(env.project().join("inner"))
        .args(["--mode", "rpc", "--model", "scripted/demo", "-e"])
        .arg(probe);
    let mut wharf = Wharf::start(command, env.names());
    wharf.prompt("/agent-system-prompt");
    let prompt = wharf.wait_notify();
    let above = prompt.find("From above.").expect("CLAUDE.md");
    let within = prompt.find("From within.").expect("AGENTS.md");
    assert!(above < within);
}

#[test]
fn flags_change_the_system_prompt() {
    let env = Env::new();
    env.write("AGENTS.md", "Here: use tabs.");
    let prompt = system_prompt(
        &env,
        &[
            "--system-prompt",
            "You are a pirate.",
            "--append-system-prompt",
            "Say arr.",
            "--tools",
            "read,ls",
        ],
    );
    assert!(prompt.starts_with("You are a pirate."), "{prompt}");
    assert!(prompt.contains("Say arr.") && prompt.contains("Here: use tabs."), "{prompt}");
    let prompt = system_prompt(&env, &["--tools", "read,ls"]);
    assert!(prompt.contains("\n- read: ") && !prompt.contains("\n- bash: "), "{prompt}");
}

#[test]
fn settings_switch_skill_commands_off() {
    let env = Env::new();
    env.write_agent("skills/review/SKILL.md", "---\nname: review\ndescription: D\n---\nBODY");
    env.write_agent("settings.json", json!({"enableSkillCommands": false}).to_string());
    let mut wharf = start(&env);
    let commands = wharf.data(json!({"type": "get_commands"}));
    assert_eq!(commands["commands"], json!([]));
    assert_eq!(sent(&mut wharf, "/skill:review x"), "/skill:review x");
}

//! Flags that extensions add to the command line.

use std::process::Output;

use wharf_tests::{Env, guest};

fn wharf(env: &Env, args: &[&str]) -> Output {
    env.command().args(args).output().unwrap()
}

fn installed() -> Env {
    let env = Env::new();
    env.write_agent("extensions/asks.wasm", std::fs::read(guest("asks")).unwrap());
    env
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn values_reach_the_extension_and_the_rest_stays_what_it_is() {
    let env = installed();
    for (args, expect) in [
        (&[][..], "plan: absent, depth: absent"),
        (&["--plan"], "plan: present, depth: absent"),
        (&["--depth=3", "--plan"], "plan: present, depth: 3"),
        (&["--depth", "4"], "plan: absent, depth: 4"),
    ] {
        let mut wharf = env.rpc(args);
        wharf.prompt("/flags");
        assert_eq!(wharf.wait_notify(), expect, "{args:?}");
        assert_eq!(wharf.finish().code, Some(0));
    }
}

#[test]
fn what_nobody_registers_is_an_error_or_a_warning_as_before() {
    let env = installed();
    for (args, expect) in [
        (&["--plans", "-p", "x"][..], "unexpected argument '--plans'"),
        (&["--plan=1", "-p", "x"], "--plan (of the extension asks) takes no value"),
        (&["--depth"], "--depth (of the extension asks) needs a value: --depth=VALUE"),
    ] {
        let output = wharf(&env, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(expect), "{args:?} {output:?}");
    }
    let exit = env.rpc(&["--no-themes"]).finish();
    assert_eq!(exit.code, Some(0));
    assert!(exit.stderr.contains("unknown option --no-themes is ignored"), "{}", exit.stderr);
    // Where no extension is loaded, nobody has the flag.
    let output = wharf(&env, &["--no-extensions", "--plan", "-p", "x"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn the_help_lists_them_and_a_clash_is_told() {
    let env = installed();
    let help = text(&wharf(&env, &["--help"]).stdout);
    let section = help.split("Extension flags:").nth(1).unwrap();
    let lines: Vec<&str> = section.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(lines.len(), 2, "{section}");
    assert!(
        lines[0].starts_with("--plan ") && lines[0].ends_with("Plans only [asks]"),
        "{section}"
    );
    assert!(lines[1].starts_with("--depth=<VALUE>"), "{section}");
    assert!(!help.contains('\u{1b}'), "{section}");
    let without = text(&wharf(&env, &["--help", "--no-extensions"]).stdout);
    assert!(!without.contains("Extension flags"), "{without}");
    let mut wharf = env.rpc(&[]);
    let error = wharf.wait_event("extension_error");
    let error = error["error"].as_str().unwrap().to_owned();
    assert!(error.contains("its flag --model cannot be given"), "{error}");
}

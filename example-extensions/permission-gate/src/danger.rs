//! Which shell commands are dangerous: `rm` that is both recursive and forced,
//! `sudo`, and `chmod` that lets everybody do everything.
//!
//! The judgement is by words, and errs towards asking. A dangerous word counts
//! wherever it stands in a command, since `xargs`, `env`, `find -exec` and many
//! others run what follows them; quotes are ignored, since `bash -c '...'` runs
//! what is in them. So `echo sudo` is asked about, and `sudoku` is not. It is a
//! seat belt against accidents, no sandbox: a shell has endless ways to spell a
//! command, by variables, encodings or scripts.

/// True when a person should see the command before it runs.
pub(crate) fn is_dangerous(command: &str) -> bool {
    simple_commands(command).iter().any(|words| {
        words.iter().enumerate().any(|(index, word)| {
            let arguments = &words[index + 1..];
            match program(word) {
                "sudo" => true,
                "rm" => is_forced_removal(arguments),
                "chmod" => opens_to_everybody(arguments),
                _ => false,
            }
        })
    })
}

/// Splits at `;`, `&`, `|`, line ends, parentheses, braces, back quotes and
/// redirections, whether quoted or not, and each part into words. Quotes and
/// backslashes are dropped, so that `r"m"`, `\rm` and a continued line are seen through.
fn simple_commands(command: &str) -> Vec<Vec<String>> {
    command
        .replace("\\\r\n", "")
        .replace("\\\n", "")
        .replace("${IFS}", " ")
        .replace("$IFS", " ")
        .replace(['\'', '"', '\\'], "")
        .split([';', '&', '|', '\n', '(', ')', '{', '}', '`', '<', '>'])
        .map(|part| part.split_whitespace().map(str::to_owned).collect())
        .collect()
}

/// `/usr/bin/sudo` is `sudo`.
fn program(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// `-rf`, `-fr`, `-r -f`, `-Rf`, `--recursive --force`, with operands between;
/// what follows `--` is a file.
fn is_forced_removal(arguments: &[String]) -> bool {
    let options = || arguments.iter().take_while(|word| *word != "--");
    let has = |letters: &[char], long: &str| {
        options().any(|option| match option.strip_prefix("--") {
            // GNU takes an unambiguous beginning of a long option.
            Some(name) => !name.is_empty() && long.starts_with(name),
            None => option.strip_prefix('-').is_some_and(|cluster| cluster.contains(letters)),
        })
    };
    has(&['r', 'R'], "recursive") && has(&['f'], "force")
}

/// Mode 777 in octal, or `rwx` for all in symbols.
fn opens_to_everybody(arguments: &[String]) -> bool {
    let Some(mode) = arguments.iter().find(|word| !word.starts_with('-')) else { return false };
    let octal = mode.trim_start_matches('0');
    let is_octal = !octal.is_empty() && octal.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    if is_octal {
        return octal.ends_with("777");
    }
    mode.split(',').any(|clause| {
        let Some((who, permissions)) = clause.split_once(['+', '=']) else { return false };
        let everybody = who.contains('a') || ['u', 'g', 'o'].iter().all(|one| who.contains(*one));
        everybody && ['r', 'w', 'x'].iter().all(|one| permissions.contains(*one))
    })
}

#[cfg(test)]
mod tests {
    use super::is_dangerous;

    #[test]
    fn dangerous_commands_are_found_wherever_they_stand() {
        for command in [
            "rm -rf /",
            "rm -fr build",
            "rm -r -f build",
            "rm build -f -R",
            "rm -vrf build",
            "rm --recursive --force build",
            "rm --force -r build",
            "rm --rec --fo build",
            "/bin/rm -rf build",
            "\\rm -rf build",
            "r''m -\"rf\" build",
            "rm \\\n -rf build",
            "rm${IFS}-rf${IFS}build",
            "cd /tmp && rm -rf x",
            "ls;rm -rf x",
            "true||rm -rf x",
            "find . | xargs rm -rf",
            "find . -exec rm -rf {} +",
            "echo $(rm -rf x)",
            "echo \"$(sudo id)\"",
            "echo `sudo id`",
            "bash -c 'rm -rf x'",
            "FOO=1 sudo id",
            "env sudo id",
            "make\nsudo make install",
            "(sudo id)",
            "chmod 777 x",
            "chmod 0777 x",
            "chmod -R 777 .",
            "chmod 1777 /tmp/x",
            "chmod a+rwx x",
            "chmod -R a=rwx x",
            "chmod ugo+xwr x",
            "chmod u+s,a+rwx x",
        ] {
            assert!(is_dangerous(command), "{command}");
        }
    }

    #[test]
    fn harmless_commands_are_let_through() {
        for command in [
            "",
            "ls -la",
            "sudoku --solve",
            "cat sudo.md",
            "./pseudo",
            "rm file",
            "rm -r build",
            "rm -f file",
            "rm -r a; rm -f b",
            "rm -- -r -f",
            "farm -rf x",
            "rm file; tar -rf x.tar y",
            "chmod 755 x",
            "chmod 644 777",
            "chmod a+rx x",
            "chmod u+rwx x",
            "chmod +x x",
            "chmod -R go-rwx .",
            "echo 777",
            "git commit -m 'remove warmth'",
        ] {
            assert!(!is_dangerous(command), "{command}");
        }
    }
}

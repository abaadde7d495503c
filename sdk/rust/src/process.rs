//! Programs and environment variables, as far as they are granted.

use std::time::Duration;

use crate::bindings::wharf::extension::process as wit;
use crate::http::lossy;
use crate::time::millis;
use crate::{AccessError, Error};

/// Programs, from [`Ctx::process`](crate::Ctx::process), as far as they are granted
/// ([`Permission::exec`](crate::Permission::exec)).
///
/// ```
/// # use wharf_sdk::{Ctx, Result};
/// async fn changed_files(ctx: &Ctx) -> Result<Vec<String>> {
///     let git = ctx.process().command("git").args(["status", "--porcelain"]);
///     let output = git.output().await?.success()?;
///     Ok(output.stdout_text().lines().map(|line| line[3..].to_owned()).collect())
/// }
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Process;

impl Process {
    /// A program to run: a name that is looked for on the `PATH`, or an absolute path.
    pub fn command(self, program: impl Into<String>) -> Command {
        Command {
            program: program.into(),
            arguments: Vec::new(),
            options: wit::ExecOptions { cwd: None, timeout_ms: None, stdin: None },
        }
    }

    /// Runs a program with arguments, in the project and for at most 60 s.
    ///
    /// # Errors
    /// As [`Command::output`].
    pub async fn exec<A: Into<String>>(
        self,
        program: impl Into<String>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<ExecOutput, AccessError> {
        self.command(program).args(arguments).output().await
    }

    /// The value of an environment variable; none: it is not set
    /// ([`Permission::env`](crate::Permission::env)).
    ///
    /// # Errors
    /// `Denied` without a grant.
    pub async fn env(self, name: impl Into<String>) -> Result<Option<String>, AccessError> {
        Ok(wit::env(name.into()).await?)
    }
}

/// A program that is about to run, without a shell, with a small environment (`PATH`,
/// `HOME`, `USER`, `LANG`, `TERM`, `TMPDIR` and the variables that are granted).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a program does not run before its output is waited for"]
pub struct Command {
    program: String,
    arguments: Vec<String>,
    options: wit::ExecOptions,
}

impl Command {
    /// Adds an argument.
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    pub fn args<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// The directory that it runs in, as a path of [`Files`](crate::Files); without it
    /// the project. One outside the project needs `fs-read`.
    pub fn cwd(mut self, directory: impl Into<String>) -> Self {
        self.options.cwd = Some(directory.into());
        self
    }

    /// When the program and what it started is killed, in whole milliseconds; 60 s
    /// without it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout_ms = Some(millis(timeout));
        self
    }

    /// What it reads, at most 16 MiB; nothing without it.
    pub fn stdin(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.options.stdin = Some(input.into());
        self
    }

    /// Runs the program and waits for its end. A program that fails is no error; see
    /// [`ExecOutput::success`]. At most 16 programs of an extension run at a time.
    ///
    /// # Errors
    /// `Denied` without a grant, `NotFound` without a program, `TimedOut` when it was
    /// killed; see [`AccessError`].
    pub async fn output(self) -> Result<ExecOutput, AccessError> {
        let output = wit::exec(self.program, self.arguments, self.options).await?;
        Ok(ExecOutput {
            exit_code: output.exit_code,
            stdout: output.stdout,
            stderr: output.stderr,
            truncated: output.truncated,
        })
    }
}

/// What came of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecOutput {
    /// None: it was killed by a signal.
    pub exit_code: Option<i32>,
    /// What it wrote to its standard output, the first 1 MiB unless settings say
    /// another size.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error, likewise.
    pub stderr: Vec<u8>,
    /// It wrote more.
    pub truncated: bool,
}

impl ExecOutput {
    /// True when it ended with the exit code 0.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self.exit_code, Some(0))
    }

    /// The output, if the program ended with the exit code 0.
    ///
    /// # Errors
    /// With what it wrote to its standard error, or its exit code when that is
    /// nothing.
    pub fn success(self) -> Result<Self, Error> {
        if self.is_success() {
            return Ok(self);
        }
        let stderr = self.stderr_text();
        let said = stderr.trim();
        Err(Error::Message(match (said, self.exit_code) {
            ("", Some(code)) => ["the program ended with exit code ", &code.to_string()].concat(),
            ("", None) => "the program was killed by a signal".to_owned(),
            (said, _) => said.to_owned(),
        }))
    }

    /// The standard output as text; what is not UTF-8 is replaced by `U+FFFD`.
    #[must_use]
    pub fn stdout_text(&self) -> String {
        lossy(self.stdout.clone())
    }

    /// The standard error as text, likewise.
    #[must_use]
    pub fn stderr_text(&self) -> String {
        lossy(self.stderr.clone())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use super::*;

    fn output(exit_code: Option<i32>, stderr: &str) -> ExecOutput {
        ExecOutput { exit_code, stdout: vec![b'a', 0xff], stderr: stderr.into(), truncated: false }
    }

    #[test]
    fn a_failure_is_told_in_the_programs_own_words_where_it_has_some() {
        for (exit_code, stderr, expected) in [
            (Some(1), " no repository\n", "no repository"),
            (Some(2), "\n", "the program ended with exit code 2"),
            (None, "", "the program was killed by a signal"),
        ] {
            let error = output(exit_code, stderr).success().unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let output = output(Some(0), "a warning").success().unwrap();
        assert_eq!(output.stdout_text(), "a\u{fffd}");
    }
}

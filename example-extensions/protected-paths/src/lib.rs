//! Keeps `write` and `edit` away from secrets and from what other programs own:
//! `.env` files, `.git/` and `node_modules/`.
//!
//! Judged are the canonical paths of the event, in which the host has resolved
//! `..` and links, component by component: `my.git/x` and `.github/x` are free.
//! `.env.local`, `.env.production` and so on hold secrets like `.env`; templates
//! (`.env.example`, `.env.sample`, `.env.template`) are meant to be shared, and are
//! free, as is what lies in a directory named `.env`.
//! Case does not count, since it does not on the file systems of macOS and Windows.
//!
//! A shell command can write too; a guard for those is `permission-gate`.

use wharf_sdk::{
    BuiltinCall, Ctx, Extension, NotifyKind, Registration, Result, ToolCallDecision, ToolCallEvent,
};

#[derive(Default)]
struct ProtectedPaths;

impl Extension for ProtectedPaths {
    fn register() -> Registration<Self> {
        Registration::new("protected-paths", env!("CARGO_PKG_VERSION"))
            .description("Blocks writes to .env files, .git and node_modules.")
            .on_tool_call(Self::tool_call)
    }
}

impl ProtectedPaths {
    async fn tool_call(&self, ctx: &Ctx, event: ToolCallEvent) -> Result<ToolCallDecision> {
        let path = match event.builtin()? {
            Some(BuiltinCall::Write(call)) => call.path,
            Some(BuiltinCall::Edit(call)) => call.path,
            _ => return Ok(ToolCallDecision::Allow),
        };
        // The written path counts too: a tool that replaces a built-in has no
        // canonical ones.
        if !is_protected(&path) && !event.paths.iter().any(|path| is_protected(path)) {
            return Ok(ToolCallDecision::Allow);
        }
        if ctx.ui().has_ui() {
            let message = format!("Blocked write to protected path: {path}");
            ctx.ui().notify_as(NotifyKind::Warning, message);
        }
        Ok(ToolCallDecision::block(format!("Path \"{path}\" is protected")))
    }
}

fn is_protected(path: &str) -> bool {
    let components: Vec<String> = path
        .split(['/', '\\'])
        .map(str::to_ascii_lowercase)
        .filter(|part| !part.is_empty())
        .collect();
    components.iter().any(|part| part == ".git" || part == "node_modules")
        || components.last().is_some_and(|name| is_env_file(name))
}

fn is_env_file(name: &str) -> bool {
    match name.strip_prefix(".env") {
        Some("") => true,
        Some(".example" | ".sample" | ".template") => false,
        Some(rest) => rest.starts_with('.'),
        None => false,
    }
}

wharf_sdk::export!(ProtectedPaths);

#[cfg(test)]
mod tests {
    use super::is_protected;

    #[test]
    fn components_count_and_not_substrings() {
        for path in [
            "/p/.env",
            ".env",
            "/p/.env.local",
            "/p/.ENV",
            "/p/.git/config",
            "/p/.git",
            "/p/a/node_modules/b/c.js",
            "C:\\p\\.git\\config",
        ] {
            assert!(is_protected(path), "{path}");
        }
        for path in [
            "/p/.environment",
            "/p/a.env",
            "/p/.env.example",
            "/p/.env/readme",
            "/p/.github/x.yml",
            "/p/my.git/x",
            "/p/.gitignore",
            "/p/node_modules.md",
            "",
        ] {
            assert!(!is_protected(path), "{path}");
        }
    }
}

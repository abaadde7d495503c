//! Settings, trust, skills, prompt templates, context files, system prompt.

//! wharf-extensions

//! wharf-session

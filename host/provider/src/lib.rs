//! wharf-provider

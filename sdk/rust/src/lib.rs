//! wharf-sdk

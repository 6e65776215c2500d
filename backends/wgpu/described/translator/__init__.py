"""A program in Rust that translates WGSL as wgpu does: `cargo install --path` this folder, see `described.translations`."""

// SPDX-License-Identifier: GPL-2.0

//! `#[pin_data]` for the model, where nothing is pinned: removes `#[pin]`.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Removes `#[pin]` from the fields of a structure.
#[proc_macro_attribute]
pub fn pin_data(_: TokenStream, item: TokenStream) -> TokenStream {
    let mut out = Vec::<TokenTree>::new();
    for token in item {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let fields = pin_data(TokenStream::new(), group.stream());
                out.push(Group::new(Delimiter::Brace, fields).into());
            }
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Bracket
                    && group.stream().to_string() == "pin" =>
            {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out.into_iter().collect()
}

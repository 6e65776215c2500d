"""The part of a module that makes and loads state dicts, and the hooks around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from polyhal.nn.hooks import HookHandle, Hooks
from polyhal.nn.state import LoadResult, load_state, state_of

if TYPE_CHECKING:
    from polyhal.nn.module import Module


class ModuleState:
    """Base of `Module`."""

    _hooks: Hooks

    def state_dict(self, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """Return parameters and persistent buffers by dotted name, after the text `prefix`, and extra state.

        The tensors share memory with the module. `keep_vars` returns the parameters themselves.
        """
        return state_of(cast("Module", self), prefix, keep_vars)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> LoadResult:
        """Copy tensors or arrays to the parameters and buffers of the same name, cast to their dtype and device.

        `assign` replaces the members by the tensors themselves, with their dtype and device: make optimizers after it.
        Raises StateDictError, before anything is changed; it lists missing and unexpected keys (only if `strict`) and all
        shapes that differ.
        """
        return load_state(cast("Module", self), state_dict, strict, assign)

    def get_extra_state(self) -> Any:
        """Return state other than tensors for the key `_extra_state` of state dicts; defined by subclasses."""
        raise RuntimeError(f"{type(self).__name__} defines no get_extra_state")

    def set_extra_state(self, state: Any) -> None:
        """Restore a result of `get_extra_state`; defined by subclasses."""
        raise RuntimeError(f"{type(self).__name__} defines no set_extra_state")

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, prefix, keep_vars)` before `state_dict` reads this module."""
        return HookHandle(self._hooks.state_before, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after `state_dict` read this module and its submodules.

        It may change the dictionary, which also holds earlier entries. The metadata is empty.
        """
        return HookHandle(self._hooks.state_after, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)` before
        `load_state_dict` looks at this module.

        It may change the dictionary, a copy, and append to the three lists. The metadata is empty.
        """
        return HookHandle(self._hooks.load_before, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, incompatible_keys)` after state was loaded into this module and its submodules.

        It may change the lists `missing_keys` and `unexpected_keys`. With such hooks, an error for them is raised after
        everything else was loaded.
        """
        return HookHandle(self._hooks.load_after, hook)

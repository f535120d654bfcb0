"""Replicas: a copy of a model's module objects that shares its weights. Nothing is run here.

Hooks, patched forwards and the state that models keep between steps are attributes of module objects. A run that works
on its own replica needs no lock, changes nothing in the user's model however it ends, and does not affect other runs.
"""

from __future__ import annotations

import os
from copy import copy
from functools import cache, partial
from types import MethodType
from typing import Any

import torch
from torch import nn

# dictionaries of a module that must be copied, so that a change in the replica does not change the original
_TABLES = (
    "_parameters _buffers _modules _non_persistent_buffers_set _backward_pre_hooks _backward_hooks _forward_hooks "
    "_forward_hooks_with_kwargs _forward_hooks_always_called _forward_pre_hooks _forward_pre_hooks_with_kwargs"
).split()


def replica(model: Any) -> Any:
    """New module objects in the same tree, with the same parameters, buffers, hooks and settings."""
    return _replica(model, {})


def _replica(module: nn.Module, made: dict[int, Any]) -> Any:
    if id(module) in made:
        return made[id(module)]
    if isinstance(module, torch.jit.ScriptModule):
        return module
    new = made[id(module)] = module.__class__.__new__(module.__class__)
    state = vars(module).copy()
    state |= {name: state[name].copy() for name in _TABLES if name in state}
    state["_compiled_call_impl"] = None  # it would call the original module
    state |= {name: _rebound(value, module, new) for name, value in state.items() if callable(value)}
    vars(new).update(state)
    if "_hf_hook" in state:
        vars(new)["_hf_hook"] = _own_hook(state["_hf_hook"], made)
    for name, child in state["_modules"].items():
        state["_modules"][name] = None if child is None else _replica(child, made)
    return new


def _rebound(value: Any, old: nn.Module, new: nn.Module) -> Any:
    """A patched forward (as accelerate makes for offloading or several devices), bound to the new module."""
    if isinstance(value, MethodType) and value.__self__ is old:
        return MethodType(value.__func__, new)
    if isinstance(value, partial) and value.args and value.args[0] is old:
        again = partial(value.func, new, *value.args[1:], **value.keywords)
        vars(again).update(vars(value))
        return again
    return value


def _own_hook(hook: Any, made: dict[int, Any]) -> Any:
    """A copy of one of accelerate's hooks, because they store which weights they moved."""
    own = copy(hook)
    if hasattr(own, "hooks"):
        own.hooks = tuple(_own_hook(part, made) for part in own.hooks)
    shared = getattr(own, "tied_params_map", None)
    if shared is not None:
        own.tied_params_map = made.setdefault(id(shared), {key: dict(value) for key, value in shared.items()})
    return own


def execution_device(module: nn.Module) -> torch.device | None:
    """Where accelerate runs a module whose weights are offloaded; None if it does not say."""
    hook: Any = getattr(module, "_hf_hook", None)
    for part in (hook, *getattr(hook, "hooks", ())):
        device = getattr(part, "execution_device", None)
        if device is not None:
            return torch.device(device)
    return None


@cache
def hold_hook_lock_while_forking() -> None:
    """Make a fork wait until no thread holds the lock under which transformers installs its hooks on a model.

    Those hooks are installed on every new replica. A process forked while another thread holds the lock would have a
    locked copy of it that nobody releases, and would wait for ever.
    """
    try:
        from transformers.utils import output_capturing
    except ImportError:  # versions without this module install no hooks
        return
    lock: Any = getattr(output_capturing, "_hook_installation_lock", None)
    if lock is not None and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)

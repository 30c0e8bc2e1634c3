"""Interfaces to clock, chance and the network (`world`): each has several implementations. The store is not among
them: it has one, which its callers name by its classes."""

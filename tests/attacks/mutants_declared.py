"""What the owner declared holds, and what people see of it: as it was before.

Kept so that each attack is seen to find what it looks for.
"""
